"""Cancels the work for a client that disconnects. Used by `answer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive
from typing_extensions import Self

from proxy.domain.errors import ShuttingDown


class CancelOnDisconnect:
    """Cancels the body of the `async with` when the client disconnects; swallows the cancellation.

    The `receive` of our own server calls back. With another server, or where the client has gone
    already, one more task waits for the disconnect.

    Raises:
        ShuttingDown: the server cancelled the body, which still ran when the drain was over.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._call_back: Callable[[Callable[[], None] | None], bool] | None
        self._call_back = getattr(receive, "on_disconnect", None)
        self._watching: asyncio.Task[None] | None = None
        self._is_disconnected = False

    async def __aenter__(self) -> Self:
        self._body = asyncio.current_task()
        if self._call_back is None or not self._call_back(self._cancel):
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._call_back is not None:
            self._call_back(None)
        if self._watching is not None:
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
        self._cancel()

    def _cancel(self) -> None:
        self._is_disconnected = True
        if self._body is not None:
            self._body.cancel()
