"""The call of the lean transport that holds a lease, see leases."""

from __future__ import annotations

import math
from collections.abc import Callable

from triton_openai.proxy.triton.http2.status import Status
from triton_openai.proxy.triton.streams.lean_stream import Carrier, LeanStream
from triton_openai.proxy.triton.streams.leases import log_refusal


class LeanLease(LeanStream):
    """Nobody reads it, and it has no deadline. `ended` is called once."""

    __slots__ = ("_ended",)

    def __init__(self, home: Carrier, ended: Callable[[], None]) -> None:
        super().__init__(home, b"", math.inf)
        self._ended = ended

    def deliver(self, message: bytes) -> None:
        self._took()
        log_refusal(message)

    def end(self, status: Status) -> None:
        if self._status is None:
            super().end(status)
            self._ended()
