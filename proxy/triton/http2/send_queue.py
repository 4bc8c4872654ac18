"""Bytes to write: control frames at once, DATA as the peer's windows allow, calls in turns."""

from __future__ import annotations

from collections import deque

from proxy.triton.http2.call import Call
from proxy.triton.http2.faults import ConnectionFault, ErrorCode
from proxy.triton.http2.frames import END_STREAM, Kind, frame
from proxy.triton.http2.peer_settings import DEFAULT_WINDOW, MAX_WINDOW, PeerSettings

MAX_ANSWERS = 64 * 1024  # bytes of answers that a peer leaves unread


class SendQueue:
    """`is_empty`: there are no bytes that may be sent now."""

    def __init__(self, peer: PeerSettings) -> None:
        self._peer = peer
        self._control: list[bytes] = []
        self._answers = 0  # bytes of `_control` that answer the peer's frames
        self._calls: deque[Call] = deque()
        self._window = DEFAULT_WINDOW  # of the connection

    @property
    def is_empty(self) -> bool:
        return not self._control and (self._window <= 0 or not self._calls)

    def put(self, frames: bytes) -> None:
        self._control.append(frames)

    def answer(self, frames: bytes) -> None:
        """A frame that answers one of the peer's. Raises ConnectionFault if too many are unread."""
        self._answers += len(frames)
        if self._answers > MAX_ANSWERS:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"the peer leaves {self._answers} bytes unread"
            )
        self._control.append(frames)

    def queue(self, call: Call) -> None:
        """Called when its body or its window has grown."""
        if call.is_sending and call.send_window > 0 and not call.is_queued:
            call.is_queued = True
            self._calls.append(call)

    def drop(self, call: Call) -> None:
        """Discards the rest of its body."""
        call.body = memoryview(b"")
        if call.is_queued:
            self._calls.remove(call)
            call.is_queued = False

    def widen(self, increment: int) -> None:
        self._window += increment
        if self._window > MAX_WINDOW:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR, f"a connection window of {self._window} bytes"
            )

    def take(self, at_most: int) -> bytes:
        """All control frames, and about `at_most` bytes of DATA."""
        parts, self._control, self._answers = self._control, [], 0
        size = 0
        while size < at_most and self._window > 0 and self._calls:
            call = self._calls.popleft()
            call.is_queued = False
            chunk = call.sendable(min(self._window, self._peer.max_frame_size))
            if not chunk:  # its window has shrunk since
                continue
            size += len(chunk)
            self._window -= len(chunk)
            flags = 0 if call.is_sending else END_STREAM
            parts.append(frame(Kind.DATA, flags, call.id, bytes(chunk)))
            self.queue(call)
        return b"".join(parts)
