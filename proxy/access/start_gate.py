"""Starts only a few requests in each turn of the event loop, so that a burst delays no stream.

A thousand requests that arrive together would otherwise all start in the same turn; it would take
a second, and every running stream would wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 4  # a request runs for about 1 ms before it first waits, a choice for a third of that


class StartGate:
    """Belongs to the event loop that first waits at it. Requests start in the order of arrival."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once  # of this turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._has_next_turn = False

    async def wait(self) -> None:
        """Returns at once while the current turn has places left, else in a later turn."""
        if not self._has_next_turn:
            self._has_next_turn = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _next_turn(self) -> None:
        left = self._at_once
        while self._waiting and left:
            turn = self._waiting.popleft()
            if not turn.done():  # the waiting task may have been cancelled
                turn.set_result(None)
                left -= 1
        self._left = left
        self._has_next_turn = left < self._at_once
        if self._has_next_turn:
            asyncio.get_running_loop().call_soon(self._next_turn)
