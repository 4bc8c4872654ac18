"""The calls of one connection: what each frame of a stream means for its call, as events, and flow
control (RFC 9113, section 5.2): what each call and the connection may receive and send.

Control frames are sent at once, DATA as the peer's windows allow, with calls in turns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from grpc import StatusCode

from proxy.triton.http2 import frames, status
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
from proxy.triton.http2.headers import Headers
from proxy.triton.http2.messages import BadMessage, MessageReader, framed
from proxy.triton.http2.status import Status

LAST_STREAM = 2**31 - 1
MAX_ANSWERS = 64 * 1024  # bytes of answers that a peer leaves unread


class MessageArrived(NamedTuple):
    """The reader calls `Connection.message_was_read` for it."""

    stream: int
    message: bytes


class CallEnded(NamedTuple):
    stream: int
    status: Status


class CallRefused(NamedTuple):
    """The peer has not processed it: it may be made again, on another connection."""

    stream: int
    reason: str


class Changed(NamedTuple):
    """`is_closed` or `room` may have changed."""


Event = MessageArrived | CallEnded | CallRefused | Changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """In bytes. Windows: what the peer may send before we read it, on one stream and on all.

    first_stream: the first call's stream, an odd number.
    """

    stream_window: int = 256 * 1024
    connection_window: int = 16 * 1024 * 1024
    max_message: int = 64 * 1024 * 1024
    first_stream: int = 1


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


class Calls:
    """Turns frames into `events`; frames for the peer go to the send queue.

    Each method for a frame may raise StreamFault or ConnectionFault.
    """

    def __init__(self, limits: Http2Limits, peer: PeerSettings, sending: SendQueue) -> None:
        self.events: list[Event] = []
        self._limits = limits
        self._peer = peer
        self._sending = sending
        self._calls: dict[int, Call] = {}
        # stream identifiers are odd, ascending, each used once (RFC 9113, section 5.1.1)
        self.next_stream = limits.first_stream

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, block: bytes, message: bytes) -> int:
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        call = self._calls[stream] = Call(
            stream,
            framed(message),
            send_window=self._peer.initial_window,
            receive_window=self._limits.stream_window,
            max_message=self._limits.max_message,
        )
        self._sending.put(frames.headers(stream, block))
        self._sending.queue(call)
        return stream

    def cancel(self, stream: int) -> None:
        if call := self._calls.pop(stream, None):
            self._sending.drop(call)
            self._sending.put(frames.reset(stream, ErrorCode.CANCEL))

    def message_was_read(self, stream: int) -> bool:
        """Lets the peer send more on this stream. Returns whether it has to be told, by a frame."""
        if (call := self._calls.get(stream)) is None:
            return False
        call.unread -= 1
        return self._credit(call)

    def data(self, flags: int, stream: int, payload: bytes) -> None:
        if (call := self._call(stream)) is None:
            return
        call.receive_window.receive(len(payload))
        if not call.has_begun:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "DATA before the response head")
        message = None if flags else call.messages.whole(payload)
        if message is not None:
            call.unread += 1
            self.events.append(MessageArrived(stream, message))
        else:
            self._data_in_pieces(call, flags, payload)

    def _data_in_pieces(self, call: Call, flags: int, payload: bytes) -> None:
        try:
            for message in call.messages.push(frames.unpadded(flags & frames.PADDED, payload)):
                call.unread += 1
                self.events.append(MessageArrived(call.id, message))
        except BadMessage as bad:
            self._end(call, bad.status, reset=ErrorCode.CANCEL)
            return
        if flags & frames.END_STREAM:
            self._end(call, status.of_trailers({}))
        else:
            self._credit(call)

    def headers(self, headers: Headers) -> None:
        call = self._call(headers.stream)
        if call is None:
            return
        if call.has_begun and not headers.ends_stream:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a second response head")
        headers.check(is_head=not call.has_begun)
        if call.has_begun:
            self._end(call, _status_of_end(call, headers))
        elif headers.is_interim:
            return
        elif headers.ends_stream:
            self._end(call, status.of_trailers_only(headers.fields))
        elif bad := status.of_response(headers.fields):
            self._end(call, bad, reset=ErrorCode.CANCEL)
        else:
            call.has_begun = True

    def reset(self, stream: int, code: int) -> None:
        if (call := self._call(stream)) is None:
            return
        ended = status.of_reset(code)
        if code == ErrorCode.REFUSED_STREAM and not call.has_begun:
            self._refuse(call, ended.details)
        else:
            self._sending.drop(call)
            self._end(call, ended)

    def widen(self, stream: int, increment: int) -> None:
        if call := self._call(stream):
            call.widen(increment)
            self._sending.queue(call)

    def widen_all(self, by: int) -> None:
        """The peer changed its initial window; `by` may be negative. Raises ConnectionFault."""
        for call in self._calls.values():
            try:
                call.widen(by)
            except StreamFault as fault:
                raise ConnectionFault(fault.code, fault.reason) from fault
            self._sending.queue(call)

    def refuse_above(self, stream: int, reason: str) -> None:
        for call in [call for call in self._calls.values() if call.id > stream]:
            self._refuse(call, reason)

    def fail(self, stream: int, fault: StreamFault) -> None:
        """Ends a stream on which the peer violated the protocol, and resets it."""
        if call := self._calls.get(stream):
            self._end(call, Status(StatusCode.INTERNAL, str(fault)), reset=fault.code)

    def end_all(self, ended: Status) -> None:
        for call in list(self._calls.values()):
            self._sending.drop(call)
            self._end(call, ended)

    def _call(self, stream: int) -> Call | None:
        """None if it has ended. Raises ConnectionFault if it was never opened."""
        call = self._calls.get(stream)
        if call is None and (stream % 2 == 0 or stream >= self.next_stream):
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a frame on stream {stream}, which was never opened"
            )
        return call

    def _end(self, call: Call, ended: Status, *, reset: ErrorCode | None = None) -> None:
        del self._calls[call.id]
        if call.is_sending:  # the peer responded before it read the whole request
            self._sending.drop(call)
            reset = reset or ErrorCode.CANCEL
        if reset:
            self._sending.answer(frames.reset(call.id, reset))
        self.events.append(CallEnded(call.id, ended))

    def _refuse(self, call: Call, reason: str) -> None:
        del self._calls[call.id]
        self._sending.drop(call)
        self.events.append(CallRefused(call.id, reason))

    def _credit(self, call: Call) -> bool:
        if call.unread or not (credit := call.receive_window.credit()):
            return False
        self._sending.put(frames.window_update(call.id, credit))
        return True


def _status_of_end(call: Call, trailers: Headers) -> Status:
    ended = status.of_trailers(trailers.fields)
    if ended.is_ok and call.messages.is_inside:
        return Status(StatusCode.INTERNAL, "the peer ended the stream inside a message")
    return ended
