"""Flow control (RFC 9113, section 5.2): what each call and the connection may receive and send.

Control frames are sent at once, DATA as the peer's windows allow, with calls in turns.
"""

from __future__ import annotations

from collections import deque

from proxy.triton.http2.frames import (
    DEFAULT_WINDOW,
    END_STREAM,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
    Fault,
    Kind,
    PeerSettings,
    StreamFault,
    frame,
)
from proxy.triton.http2.messages import MessageReader

MAX_ANSWERS = 64 * 1024  # bytes of answers that a peer leaves unread


class ReceiveWindow:
    """Counts the bytes that the peer may still send on a stream or connection. Raises `fault` if it
    sends more.
    """

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


class Call:
    """The state of one stream. Windows are in bytes.

    Its receive window is not reopened while messages are unread, so a reader that does not read
    holds at most one window and one message in memory.
    """

    __slots__ = (
        "body",
        "has_begun",
        "id",
        "is_queued",
        "messages",
        "receive_window",
        "send_window",
        "unread",
    )

    def __init__(
        self, stream: int, body: bytes, *, send_window: int, receive_window: int, max_message: int
    ) -> None:
        self.id = stream
        self.body = memoryview(body)  # not sent yet
        self.send_window = send_window  # below 0 after the peer has shrunk its windows
        self.receive_window = ReceiveWindow(receive_window, StreamFault)
        self.messages = MessageReader(max_message)
        self.unread = 0  # messages
        self.is_queued = False  # in the send queue
        self.has_begun = False  # the response head has arrived

    @property
    def is_sending(self) -> bool:
        return bool(self.body)

    def sendable(self, at_most: int) -> memoryview:
        """Takes as much of the body as the window and `at_most` allow, perhaps nothing."""
        size = max(0, min(self.send_window, at_most))
        chunk, self.body = self.body[:size], self.body[size:]
        self.send_window -= len(chunk)
        return chunk

    def widen(self, increment: int) -> None:
        """The peer accepts more bytes."""
        self.send_window += increment
        if self.send_window > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {self.send_window} bytes")


class SendQueue:
    """The bytes to write."""

    def __init__(self, peer: PeerSettings) -> None:
        self._peer = peer
        self._control: list[bytes] = []
        self._answers = 0  # bytes of `_control` that answer the peer's frames
        self._calls: deque[Call] = deque()
        self._window = DEFAULT_WINDOW  # of the connection

    def has_output(self) -> bool:
        """Whether there are bytes that may be sent now."""
        return bool(self._control or (self._calls and self._window > 0))

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
