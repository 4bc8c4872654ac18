"""How much the peer may still send on a stream or connection (RFC 9113, section 5.2)."""

from __future__ import annotations

from proxy.triton.http2.faults import ErrorCode, Fault


class ReceiveWindow:
    """Counts the bytes that the peer may still send. Raises `fault` if it sends more."""

    __slots__ = ("_fault", "_left", "_size")

    def __init__(self, size: int, fault: type[Fault]) -> None:
        self._size = size
        self._left = size
        self._fault = fault

    def receive(self, size: int) -> None:
        """Counts a DATA frame of this size, including padding."""
        self._left -= size
        if self._left < 0:
            raise self._fault(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"{-self._left} bytes beyond the window of {self._size}",
            )

    def credit(self) -> int:
        """Reopens the window. Returns the increment to send, 0 while it is not worth a frame."""
        owed = self._size - self._left
        if owed * 2 < self._size:
            return 0
        self._left = self._size
        return owed
