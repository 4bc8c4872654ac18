"""Whether this server is about to stop: said once, and waited for by what outlives a request."""

from __future__ import annotations

import asyncio


class Leaving:
    """Made before there is an event loop; one for the whole application."""

    def __init__(self) -> None:
        self._said = asyncio.Event()

    @property
    def is_said(self) -> bool:
        return self._said.is_set()

    def say(self) -> None:
        self._said.set()

    async def wait(self) -> None:
        await self._said.wait()
