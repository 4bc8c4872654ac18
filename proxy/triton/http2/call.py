"""One call on a connection: its two windows, what is left to send, the message coming in."""

from __future__ import annotations

from proxy.triton.http2.faults import ErrorCode, StreamFault
from proxy.triton.http2.messages import MessageReader
from proxy.triton.http2.peer_settings import MAX_WINDOW


class Call:
    """The state of one stream. Windows are in bytes.

    While messages are unread, what they took from the stream's window is owed to the peer: so a
    reader that stands still holds at most a window and one message.
    """

    __slots__ = (
        "_receive_window",
        "_window",
        "body",
        "has_begun",
        "id",
        "is_queued",
        "messages",
        "owed",
        "send_window",
        "unread",
    )

    def __init__(
        self, stream: int, body: bytes, *, send_window: int, window: int, max_message_bytes: int
    ) -> None:
        self.id = stream
        self.body = memoryview(body)  # not sent yet
        self.send_window = send_window  # below 0 when the peer makes its windows smaller
        self.messages = MessageReader(max_message_bytes)
        self.unread = 0  # messages
        self.owed = 0
        self.is_queued = False  # in the outbox
        self.has_begun = False  # the head of the answer has come
        self._window = window
        self._receive_window = window

    @property
    def is_sending(self) -> bool:
        return bool(self.body)

    def sendable(self, at_most: int) -> memoryview:
        """Takes from the body what the stream's window and `at_most` allow, perhaps nothing."""
        size = max(0, min(self.send_window, at_most))
        chunk, self.body = self.body[:size], self.body[size:]
        self.send_window -= len(chunk)
        return chunk

    def widen(self, increment: int) -> None:
        """The peer takes more."""
        self.send_window += increment
        if self.send_window > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {self.send_window} bytes")

    def receive(self, size: int) -> None:
        """A DATA frame of so many bytes, padding included."""
        self._receive_window -= size
        self.owed += size
        if self._receive_window < 0:
            raise StreamFault(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"{-self._receive_window} bytes more than the stream's window",
            )

    def credit(self) -> int:
        """What to give back now: when all is read, and it is worth a frame; else 0."""
        if self.unread or self.owed * 2 < self._window:
            return 0
        credit, self.owed = self.owed, 0
        self._receive_window += credit
        return credit
