"""Sends a request again while its guide is being compiled. Used by `client` and `tokenizer`.

The tokenizer reports a pending guide within a tenth of a second, instead of holding up other
prompts.
"""

from __future__ import annotations

import asyncio

from proxy.domain.errors import DeadlineExceeded, GuidePending

MAX_WAIT_S = 60.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.1


class GuideRetries:
    """The retries of one request. left_s: what is left of `timeout_s` for the next attempt."""

    def __init__(self, timeout_s: float) -> None:
        self._began: float | None = None
        self._timeout_s = self.left_s = timeout_s
        self._pause_s = FIRST_PAUSE_S

    async def wait(self, pending: GuidePending) -> None:
        """Returns when the next attempt is due.

        Raises:
            DeadlineExceeded: the request's time is over.
            GuidePending: MAX_WAIT_S is over; this is `pending`.
        """
        now = asyncio.get_running_loop().time
        if self._began is None:
            self._began = now()
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        waited_s = now() - self._began
        if waited_s > MAX_WAIT_S:
            raise pending
        self.left_s = self._timeout_s - waited_s
        if self.left_s <= 0:
            raise DeadlineExceeded("The request took longer than allowed and was stopped.")
