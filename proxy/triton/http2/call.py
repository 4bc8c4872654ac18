"""One call on a connection: its two windows, the rest of its request, the incoming message."""

from __future__ import annotations

from proxy.triton.http2.faults import ErrorCode, StreamFault
from proxy.triton.http2.messages import MessageReader
from proxy.triton.http2.peer_settings import MAX_WINDOW
from proxy.triton.http2.receive_window import ReceiveWindow


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
