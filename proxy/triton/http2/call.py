"""One call on a connection: its two windows, what is left to send, the message coming in."""

from __future__ import annotations

from triton_openai.proxy.triton.http2.faults import ErrorCode, StreamFault
from triton_openai.proxy.triton.http2.messages import MessageReader
from triton_openai.proxy.triton.http2.peer_settings import MAX_WINDOW
from triton_openai.proxy.triton.http2.receive_window import ReceiveWindow


class Call:
    """The state of one stream. Windows are in bytes.

    While messages are unread its window stays as it is: so a reader that stands still holds at most
    a window and one message.
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
        self.send_window = send_window  # below 0 when the peer makes its windows smaller
        self.receive_window = ReceiveWindow(receive_window, StreamFault)
        self.messages = MessageReader(max_message)
        self.unread = 0  # messages
        self.is_queued = False  # in the outbox
        self.has_begun = False  # the head of the answer has come

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
