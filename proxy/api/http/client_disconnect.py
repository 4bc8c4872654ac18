"""Cancels the work for a client that disconnects. Used by `answer`."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive
from typing_extensions import Self

from proxy.domain.errors import ShuttingDown


class CancelOnDisconnect:
    """Cancels the body of the `async with` when the client disconnects; swallows the cancellation.

    The body runs in the caller's own task; one more task waits for the disconnect.

    Raises:
        ShuttingDown: the server cancelled the body, which still ran when the drain was over.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_disconnected = False

    async def __aenter__(self) -> Self:
        self._body = asyncio.current_task()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._watching.cancel()
        if not isinstance(error, asyncio.CancelledError):
            return False
        if not self._is_disconnected:
            raise ShuttingDown("The server is shutting down.") from None
        if self._body is not None and hasattr(self._body, "uncancel"):  # from Python 3.11 on
            self._body.uncancel()
        return True

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_disconnected = True
        if self._body is not None:
            self._body.cancel()
