"""Times the work on one request: prefill and decode, without the waits for a row. Used by stream.

Prefill is the time from getting a row to the next new token, decode the time from that token to the
last one. After a preemption the request gets another row: both are then sums over its rows, and the
time without a row is in neither.
"""

from __future__ import annotations

import time

INT32_MOST = 2**31 - 1


class RowClock:
    """Only the runtime's thread calls it. `is_prefilling`: no new token has come since the row."""

    __slots__ = ("_decode_s", "_prefill_s", "_since", "is_prefilling")

    def __init__(self) -> None:
        self.is_prefilling = False
        self._since: float | None = None  # None without a row
        self._prefill_s = self._decode_s = 0.0

    def get_row(self, since: float) -> None:
        """`since`: of time.monotonic."""
        self._since = since
        self.is_prefilling = True

    def see_token(self) -> None:
        """The first new token since the row; later ones need no call."""
        self._add()
        self.is_prefilling = False

    def lose_row(self) -> None:
        self._add()
        self._since = None

    def end(self) -> dict[str, int]:
        """The output tensors; none if the request never had a row."""
        if self._since is None:
            return {}
        self._add()
        return {
            "prefill_time_us": microseconds(self._prefill_s),
            "decode_time_us": microseconds(self._decode_s),
        }

    def _add(self) -> None:
        now = time.monotonic()
        spent_s = 0.0 if self._since is None else now - self._since
        if self.is_prefilling:
            self._prefill_s += spent_s
        else:
            self._decode_s += spent_s
        self._since = now


def microseconds(seconds: float) -> int:
    """As an INT32 tensor has them."""
    return min(round(seconds * 1_000_000), INT32_MOST)
