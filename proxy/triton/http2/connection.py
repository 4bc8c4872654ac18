"""The client's side of an HTTP/2 connection that carries gRPC calls with one request each.

Source: RFC 9113. Pure: `receive` takes the bytes that the socket gave, `output` returns the bytes
to write. Control frames are sent at once, DATA as the peer's windows allow (section 5.2), with
calls in turns. Called by streams.link.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from grpc import StatusCode

from proxy.triton.http2 import frames, status
from proxy.triton.http2.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_STREAM,
    HEADER,
    MAX_PAYLOAD,
    MAX_WINDOW,
    STREAM_MASK,
    ConnectionFault,
    ErrorCode,
    Fault,
    Kind,
    PeerSettings,
    Setting,
    StreamFault,
)
from proxy.triton.http2.headers import MAX_BLOCK, Fields, HeadEncoder, HeaderBlocks
from proxy.triton.http2.status import Status

LAST_STREAM = 2**31 - 1
MAX_ANSWERS = 64 * 1024  # bytes of answers that a peer leaves unread
_DATA = int(Kind.DATA)  # compared with for every frame
_PING = frames.frame(Kind.PING, 0, 0, b"are you?")
_PREFIX = struct.Struct(">BI")  # of a gRPC message: whether it is compressed, its length
PREFIX_BYTES = _PREFIX.size


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
    """`why_closed` or `room` may have changed."""


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
        "receive_window",
        "rest",
        "send_window",
        "unread",
    )

    def __init__(self, stream: int, body: bytes, send_window: int, receive_window: int) -> None:
        self.id = stream
        self.body = memoryview(body)  # not sent yet
        self.send_window = send_window  # below 0 after the peer has shrunk its windows
        self.receive_window = receive_window  # what the peer may still send
        self.rest = bytearray()  # the beginning of a message
        self.unread = 0  # messages
        self.is_queued = False  # to send its body
        self.has_begun = False  # the response head has arrived

    def widen(self, increment: int) -> None:
        """The peer accepts more bytes."""
        self.send_window += increment
        if self.send_window > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {self.send_window} bytes")


class Connection:
    """A violation of the protocol never raises: it ends one call, or all calls and the connection.

    shared: the headers that every call begins with. why_closed: empty while it is open.
    is_leaving: no more calls can be opened.
    """

    def __init__(self, limits: Http2Limits, shared: Fields = ()) -> None:
        self.why_closed = ""
        self.is_leaving = False
        self._limits = limits
        self._peer = PeerSettings()
        self._heads = HeadEncoder(shared)
        self._blocks = HeaderBlocks()
        self._rest = b""  # the beginning of a frame
        self._window = limits.connection_window  # what the peer may still send
        self._calls: dict[int, Call] = {}
        # stream identifiers are odd, ascending, each used once (RFC 9113, section 5.1.1)
        self._next_stream = limits.first_stream
        self._events: list[Event] = []
        self._has_settings = self._is_acknowledged = False
        # what is to be written
        self._control = [_preface(limits)]
        self._answers = 0  # bytes of `_control` that answer the peer's frames
        self._sending: deque[Call] = deque()
        self._send_window = DEFAULT_WINDOW

    @property
    def is_ready(self) -> bool:
        """Whether both sides' settings are in force, and calls can be opened."""
        return self._has_settings and self._is_acknowledged and not self.is_leaving

    @property
    def room(self) -> int:
        """How many more calls can be opened now."""
        if self.is_leaving or not (self._has_settings and self._is_acknowledged):
            return 0
        return max(0, self._peer.max_concurrent_streams - len(self._calls))

    def open(self, headers: Fields, message: bytes) -> int:
        """Opens a call with headers of its own and returns its stream number. Needs `room`."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self.is_leaving = self._next_stream > LAST_STREAM
        body = _PREFIX.pack(0, len(message)) + message
        call = Call(stream, body, self._peer.initial_window, self._limits.stream_window)
        self._calls[stream] = call
        self._control.append(frames.headers(stream, self._heads.encode(headers)))
        self._queue(call)
        return stream

    def cancel(self, stream: int) -> None:
        """Resets the stream; there are no more events for it."""
        if call := self._calls.pop(stream, None):
            self._drop(call)
            self._control.append(frames.reset(stream, ErrorCode.CANCEL))

    def ping(self) -> None:
        """Asks the peer for a sign of life; whatever it sends next is one."""
        self._control.append(_PING)

    def message_was_read(self, stream: int) -> bool:
        """Lets the peer send more on this stream. Returns whether it has to be told, by a frame."""
        if (call := self._calls.get(stream)) is None:
            return False
        call.unread -= 1
        if call.receive_window * 2 > self._limits.stream_window:
            return False
        return self._reopen(call)

    def output(self, at_most: int) -> bytes:
        """The bytes to write now: all control frames, and about `at_most` bytes of DATA."""
        if not (self._control or self._sending):
            return b""
        parts, self._control, self._answers = self._control, [], 0
        size = 0
        while size < at_most and self._send_window > 0 and self._sending:
            call = self._sending.popleft()
            call.is_queued = False
            most = min(call.send_window, self._send_window, self._peer.max_frame_size)
            if most <= 0:  # its window has shrunk since
                continue
            chunk, call.body = bytes(call.body[:most]), call.body[most:]
            size += len(chunk)
            call.send_window -= len(chunk)
            self._send_window -= len(chunk)
            flags = 0 if call.body else END_STREAM
            parts.append(frames.frame(Kind.DATA, flags, call.id, chunk))
            self._queue(call)
        return b"".join(parts)

    def receive(self, data: bytes) -> list[Event]:
        if self.why_closed:
            return []
        begun = data
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= 9:
                high, low, kind, flags, stream = HEADER.unpack_from(data, at)
                size = high << 8 | low
                if size > MAX_PAYLOAD:
                    raise ConnectionFault(
                        ErrorCode.FRAME_SIZE_ERROR,
                        f"a frame of {size} bytes, more than the {MAX_PAYLOAD} allowed",
                    )
                start = at + 9
                if start + size > end:
                    break
                at = start + size
                payload, stream = data[start:at], stream & STREAM_MASK
                try:
                    if kind == _DATA and not self._blocks.stream:
                        self._data(flags, stream, payload)
                    else:
                        self._handle(kind, flags, stream, payload)
                except StreamFault as fault:
                    self._fail(stream, fault)
            self._rest = data[at:]
        except ConnectionFault as fault:
            reason = _explained(fault, begun, is_http2=self._has_settings)
            self._close(fault.code, StatusCode.INTERNAL, reason)
        events, self._events = self._events, []
        return events

    def close(self, reason: str) -> list[Event]:
        """Ends all running calls, and sends a GOAWAY."""
        if not self.why_closed:
            self._close(ErrorCode.NO_ERROR, StatusCode.UNAVAILABLE, reason)
        events, self._events = self._events, []
        return events

    def _close(self, code: ErrorCode, status: StatusCode, reason: str) -> None:
        self.why_closed, self.is_leaving = reason, True
        for call in list(self._calls.values()):
            self._drop(call)
            self._end(call, Status(status, reason))
        self._control.append(frames.go_away(code, reason))
        self._events.append(Changed())

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        """Nearly every frame, so in one function: flow control, then one whole message."""
        size, limits = len(payload), self._limits
        self._window -= size
        if self._window * 2 <= limits.connection_window:
            if self._window < 0:
                raise _beyond(ConnectionFault, self._window, limits.connection_window)
            # given back at once, so that no stream stops another
            owed, self._window = limits.connection_window - self._window, limits.connection_window
            self._control.append(frames.window_update(0, owed))
        call = self._calls.get(stream) or self._call(stream)
        if call is None:
            return
        call.receive_window -= size
        if call.receive_window < 0:
            raise _beyond(StreamFault, call.receive_window, limits.stream_window)
        if not call.has_begun:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "DATA before the response head")
        size -= PREFIX_BYTES
        is_whole = 0 <= size <= limits.max_message and payload.startswith(_PREFIX.pack(0, size))
        if is_whole and not flags and not call.rest:
            call.unread += 1
            self._events.append(MessageArrived(stream, payload[PREFIX_BYTES:]))
        else:
            self._data_in_pieces(call, flags, payload)

    def _data_in_pieces(self, call: Call, flags: int, payload: bytes) -> None:
        rest = call.rest
        rest += frames.unpadded(flags & frames.PADDED, payload)
        while len(rest) >= PREFIX_BYTES:
            compression, size = _PREFIX.unpack_from(rest)
            if compression or size > self._limits.max_message:
                self._end(call, self._bad_message(compression, size), reset=ErrorCode.CANCEL)
                return
            end = PREFIX_BYTES + size
            if len(rest) < end:
                break
            call.unread += 1
            self._events.append(MessageArrived(call.id, bytes(memoryview(rest)[PREFIX_BYTES:end])))
            del rest[:end]
        if flags & END_STREAM:
            self._end(call, status.of_trailers({}))
        else:
            self._reopen(call)

    def _bad_message(self, compression: int, size: int) -> Status:
        if compression:
            reason = f"a compressed message (flag {compression}), although the call allowed no "
            return Status(StatusCode.INTERNAL, f"{reason}encoding")
        reason = f"a message of {size} bytes, more than the {self._limits.max_message} allowed"
        return Status(StatusCode.RESOURCE_EXHAUSTED, reason)

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Any frame but the usual DATA. Ignores PRIORITY and unknown kinds."""
        if self._blocks.stream and kind != Kind.CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block was not continued")
        if not self._has_settings and kind != Kind.SETTINGS:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if stream and kind in (Kind.SETTINGS, Kind.PING, Kind.GOAWAY):
            reason = f"a {Kind(kind).name} on stream {stream}"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)
        match kind:
            case Kind.HEADERS | Kind.CONTINUATION:
                fields = self._blocks.push(kind, flags, stream, payload)
                if fields is not None:
                    self._headers(stream, fields, ends_stream=self._blocks.ends_stream)
            case Kind.WINDOW_UPDATE:
                self._widen(stream, frames.increment(stream, payload))
            case Kind.RST_STREAM:
                self._reset(stream, frames.number(payload, "RST_STREAM"))
            case Kind.SETTINGS:
                self._settings(flags, payload)
            case Kind.PING:
                if len(payload) != 8:
                    reason = f"a PING of {len(payload)} bytes"
                    raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, reason)
                if not flags & ACK:
                    self._answer(frames.frame(Kind.PING, ACK, 0, payload))
            case Kind.GOAWAY:
                last, code, text = frames.parse_go_away(payload)
                self.is_leaving = True
                reason = f"the peer goes away: {frames.code_name(code)} {text!r}"
                for call in [call for call in self._calls.values() if call.id > last]:
                    self._refuse(call, reason)
                self._events.append(Changed())
            case Kind.PUSH_PROMISE:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a PUSH_PROMISE")

    def _headers(self, stream: int, fields: dict[str, str], *, ends_stream: bool) -> None:
        call = self._call(stream)
        if call is None:
            return
        if call.has_begun and not ends_stream:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a second response head")
        _check(fields, is_head=not call.has_begun)
        if call.has_begun:
            ended = status.of_trailers(fields)
            if ended.is_ok and call.rest:
                reason = "the peer ended the stream inside a message"
                ended = Status(StatusCode.INTERNAL, reason)
            self._end(call, ended)
        elif ends_stream:
            self._end(call, status.of_trailers_only(fields))
        elif fields[":status"].startswith("1"):
            return  # interim: the response head follows
        elif bad := status.of_response(fields):
            self._end(call, bad, reset=ErrorCode.CANCEL)
        else:
            call.has_begun = True

    def _widen(self, stream: int, increment: int) -> None:
        if not stream:
            self._send_window += increment
            if self._send_window > MAX_WINDOW:
                reason = f"a connection window of {self._send_window} bytes"
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, reason)
        elif call := self._call(stream):
            call.widen(increment)
            self._queue(call)

    def _reset(self, stream: int, code: int) -> None:
        if (call := self._call(stream)) is None:
            return
        ended = status.of_reset(code)
        if code == ErrorCode.REFUSED_STREAM and not call.has_begun:
            self._refuse(call, ended.details)
        else:
            self._drop(call)
            self._end(call, ended)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS ACK with settings")
            self._is_acknowledged = True
        else:
            before = self._peer.initial_window
            self._peer.update(payload)
            for call in self._calls.values():
                try:
                    call.widen(self._peer.initial_window - before)
                except StreamFault as fault:
                    raise ConnectionFault(fault.code, fault.reason) from fault
                self._queue(call)
            self._heads.resize(self._peer.header_table_size)
            self._has_settings = True
            self._answer(frames.ACKNOWLEDGED)
        self._events.append(Changed())

    def _fail(self, stream: int, fault: StreamFault) -> None:
        """Ends a stream on which the peer violated the protocol, and resets it."""
        if call := self._calls.get(stream):
            self._end(call, Status(StatusCode.INTERNAL, str(fault)), reset=fault.code)

    def _call(self, stream: int) -> Call | None:
        """None if it has ended. Raises ConnectionFault if it was never opened."""
        call = self._calls.get(stream)
        if call is None and (stream % 2 == 0 or stream >= self._next_stream):
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a frame on stream {stream}, which was never opened"
            )
        return call

    def _end(self, call: Call, ended: Status, *, reset: ErrorCode | None = None) -> None:
        del self._calls[call.id]
        if call.body:  # the peer responded before it read the whole request
            self._drop(call)
            reset = reset or ErrorCode.CANCEL
        if reset:
            self._answer(frames.reset(call.id, reset))
        self._events.append(CallEnded(call.id, ended))

    def _refuse(self, call: Call, reason: str) -> None:
        del self._calls[call.id]
        self._drop(call)
        self._events.append(CallRefused(call.id, reason))

    def _reopen(self, call: Call) -> bool:
        """Returns whether the receive window has to be reopened, by a frame: not for every byte,
        and not while messages are unread.
        """
        owed = self._limits.stream_window - call.receive_window
        if call.unread or owed * 2 < self._limits.stream_window:
            return False
        call.receive_window += owed
        self._control.append(frames.window_update(call.id, owed))
        return True

    def _answer(self, frame: bytes) -> None:
        """Sends a frame that answers one of the peer's. Raises ConnectionFault if too many are
        unread.
        """
        self._answers += len(frame)
        if self._answers > MAX_ANSWERS:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"the peer leaves {self._answers} bytes unread"
            )
        self._control.append(frame)

    def _queue(self, call: Call) -> None:
        """Called when its body or its window has grown."""
        if call.body and call.send_window > 0 and not call.is_queued:
            call.is_queued = True
            self._sending.append(call)

    def _drop(self, call: Call) -> None:
        """Discards the rest of its body."""
        call.body = memoryview(b"")
        if call.is_queued:
            self._sending.remove(call)
            call.is_queued = False


def _preface(limits: Http2Limits) -> bytes:
    ours = frames.settings(
        {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
            Setting.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
        }
    )
    wider = limits.connection_window - DEFAULT_WINDOW
    return frames.PREFACE + ours + (frames.window_update(0, wider) if wider else b"")


def _beyond(kind: type[Fault], window: int, size: int) -> Fault:
    return kind(ErrorCode.FLOW_CONTROL_ERROR, f"{-window} bytes beyond the window of {size}")


def _check(fields: dict[str, str], *, is_head: bool) -> None:
    """Raises StreamFault if they are malformed (RFC 9113, sections 8.2 and 8.3)."""
    for name in fields:
        is_pseudo = name.startswith(":") and not (is_head and name == ":status")
        if name.lower() != name or is_pseudo:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, f"a header named {name!r}")
    if is_head and ":status" not in fields:
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a response without :status")


def _explained(fault: ConnectionFault, data: bytes, *, is_http2: bool) -> str:
    if is_http2:
        return f"the peer violated the protocol, {fault}"
    return f"the peer does not speak HTTP/2: {fault}; it sent {data[:40]!r}"
