"""Reads the meters of running streams a few times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

READ_S = 0.25
READ_AT_ONCE = 500

T = TypeVar("T")


class Meters(Generic[T]):
    """read: takes up to 500 of them. There is no timer while nothing runs."""

    def __init__(self, read: Callable[[Sequence[T]], None]) -> None:
        self._read = read
        self._running: dict[T, None] = {}
        self._timer: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._running)

    def add(self, permit: T) -> None:
        self._running[permit] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(READ_S, self._begin)

    def remove(self, permit: T) -> None:
        self._running.pop(permit, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._go_on(list(self._running))

    def _go_on(self, permits: list[T]) -> None:
        """permits: those that are still to be read; some have ended meanwhile."""
        loop = asyncio.get_running_loop()
        now, later = permits[:READ_AT_ONCE], permits[READ_AT_ONCE:]
        self._read([permit for permit in now if permit in self._running])
        if later:
            self._timer = loop.call_soon(self._go_on, later)
        elif self._running:
            self._timer = loop.call_later(READ_S, self._begin)
        else:
            self._timer = None
