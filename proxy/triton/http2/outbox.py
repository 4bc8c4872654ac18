"""What is to be written: control frames at once, DATA as the peer's windows allow, in turns."""

from __future__ import annotations

from collections import deque

from triton_openai.proxy.triton.http2.call import Call
from triton_openai.proxy.triton.http2.faults import ConnectionFault, ErrorCode
from triton_openai.proxy.triton.http2.frames import END_STREAM, Kind, frame
from triton_openai.proxy.triton.http2.peer_settings import DEFAULT_WINDOW, MAX_WINDOW, PeerSettings

MAX_ANSWERS = 64 * 1024  # bytes that wait for a peer which asks but does not read


class Outbox:
    """Bytes for the socket. `is_empty` where there are none that may be sent now."""

    def __init__(self, peer: PeerSettings) -> None:
        self._peer = peer
        self._control: list[bytes] = []
        self._answers = 0  # bytes of `_control` that the peer caused
        self._sending: deque[Call] = deque()
        self._window = DEFAULT_WINDOW  # of the connection

    @property
    def is_empty(self) -> bool:
        return not self._control and (self._window <= 0 or not self._sending)

    def put(self, frames: bytes) -> None:
        self._control.append(frames)

    def answer(self, frames: bytes) -> None:
        """A frame that the peer caused. Raises ConnectionFault where it caused too many."""
        self._answers += len(frames)
        if self._answers > MAX_ANSWERS:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"the peer leaves {self._answers} bytes unread"
            )
        self._control.append(frames)

    def queue(self, call: Call) -> None:
        """When its body or its window has grown."""
        if call.is_sending and call.send_window > 0 and not call.is_queued:
            call.is_queued = True
            self._sending.append(call)

    def drop(self, call: Call) -> None:
        """Nothing more of it is sent."""
        call.body = memoryview(b"")
        if call.is_queued:
            self._sending.remove(call)
            call.is_queued = False

    def widen(self, increment: int) -> None:
        self._window += increment
        if self._window > MAX_WINDOW:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR, f"a connection window of {self._window} bytes"
            )

    def take(self, at_most: int) -> bytes:
        """All control frames, and DATA of about `at_most` bytes."""
        parts, self._control, self._answers = self._control, [], 0
        size = 0
        while size < at_most and self._window > 0 and self._sending:
            call = self._sending.popleft()
            call.is_queued = False
            chunk = call.sendable(min(self._window, self._peer.max_frame_size))
            if not chunk:  # its window has become smaller
                continue
            size += len(chunk)
            self._window -= len(chunk)
            flags = 0 if call.is_sending else END_STREAM
            parts.append(frame(Kind.DATA, flags, call.id, bytes(chunk)))
            self.queue(call)
        return b"".join(parts)
