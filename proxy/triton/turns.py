"""A request whose guide is still being compiled is sent again until it is its turn.

The tokenizer tells so within a tenth of a second, instead of holding up the prompts behind it.
"""

from __future__ import annotations

import asyncio

from triton_openai.proxy.domain.errors import DeadlineExceeded, GuidePending

PATIENCE_S = 60.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.1


class Turns:
    """Of one request. `left_s`: what the next attempt has of `timeout_s`."""

    def __init__(self, timeout_s: float) -> None:
        self._began: float | None = None
        self._timeout_s = self.left_s = timeout_s
        self._pause_s = FIRST_PAUSE_S

    async def wait(self, pending: GuidePending) -> None:
        """
        Raises:
            DeadlineExceeded, GuidePending: its time, or PATIENCE_S, is over.
        """
        now = asyncio.get_running_loop().time
        if self._began is None:
            self._began = now()
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        waited_s = now() - self._began
        if waited_s > PATIENCE_S:
            raise pending
        self.left_s = self._timeout_s - waited_s
        if self.left_s <= 0:
            raise DeadlineExceeded("The request took longer than allowed and was stopped.")
