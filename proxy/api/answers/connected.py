"""Work that lives no longer than its client."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive
from typing_extensions import Self

from triton_openai.proxy.domain.errors import ShuttingDown


class Connected:
    """The body of `async with` is cancelled when the client leaves, and nothing raised of it.

    The body runs in the caller's own task, so a task that watches is all that this costs.

    Raises:
        ShuttingDown: the server cancels what has outlasted the drain.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_left = False

    async def __aenter__(self) -> Self:
        self._body = asyncio.current_task()
        self._watching = asyncio.ensure_future(self._watch())
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
        if not self._has_left:
            raise ShuttingDown("The server is shutting down.") from None
        if self._body is not None and hasattr(self._body, "uncancel"):  # from Python 3.11 on
            self._body.uncancel()
        return True

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._has_left = True
        if self._body is not None:
            self._body.cancel()
