"""A client's stream identifiers on one connection (RFC 9113, section 5.1.1)."""

from __future__ import annotations

from proxy.triton.http2.faults import ConnectionFault, ErrorCode

LAST_STREAM = 2**31 - 1


class StreamNumbers:
    """Odd, ascending, each used once. next: the next one."""

    __slots__ = ("next",)

    def __init__(self, first: int) -> None:
        self.next = first

    @property
    def are_used_up(self) -> bool:
        return self.next > LAST_STREAM

    def take(self) -> int:
        taken, self.next = self.next, self.next + 2
        return taken

    def check(self, stream: int) -> None:
        """Raises ConnectionFault if the stream was never opened."""
        if stream % 2 == 0 or stream >= self.next:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a frame on stream {stream}, which was never opened"
            )
