"""The client's side of an HTTP/2 connection that carries gRPC calls with one request each.

Source: RFC 9113. Pure: `receive` takes the bytes that the socket gave, `output` returns the bytes
to write. Called by streams.link.
"""

from __future__ import annotations

from grpc import StatusCode

from proxy.triton.http2 import frames
from proxy.triton.http2.calls import (
    LAST_STREAM,
    Calls,
    Changed,
    Event,
    Http2Limits,
    ReceiveWindow,
    SendQueue,
)
from proxy.triton.http2.frames import (
    DEFAULT_WINDOW,
    ConnectionFault,
    ErrorCode,
    Frame,
    FrameReader,
    Kind,
    PeerSettings,
    StreamFault,
    code_name,
)
from proxy.triton.http2.headers import MAX_BLOCK, Fields, HeadEncoder, HeaderBlocks
from proxy.triton.http2.status import Status

CONNECTION_KINDS = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)
_DATA = int(Kind.DATA)  # compared with for every frame
_PING = frames.frame(Kind.PING, 0, 0, b"are you?")


class Connection:
    """A violation of the protocol never raises: it ends one call, or all calls and the connection.

    shared: the headers that every call begins with.
    """

    def __init__(self, limits: Http2Limits, shared: Fields = ()) -> None:
        self._peer = PeerSettings()
        self._sending = SendQueue(self._peer)
        self._calls = Calls(limits, self._peer, self._sending)
        self._heads = HeadEncoder(shared)
        self._frames = FrameReader()
        self._blocks = HeaderBlocks()
        self._window = ReceiveWindow(limits.connection_window, ConnectionFault)
        self._has_settings = self._is_acknowledged = self._has_gone_away = False
        # Called for every message, so without a layer between: see SendQueue and Calls.
        self.has_output = self._sending.has_output
        self.message_was_read = self._calls.message_was_read
        self.why_closed = ""
        self._sending.put(_preface(limits))

    @property
    def is_ready(self) -> bool:
        """Whether both sides' settings are in force, and calls can be opened."""
        return self._has_settings and self._is_acknowledged and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        """Whether no more calls can be opened."""
        return bool(self.why_closed) or self._has_gone_away or self._calls.next_stream > LAST_STREAM

    @property
    def is_closed(self) -> bool:
        return bool(self.why_closed)

    @property
    def room(self) -> int:
        """How many more calls can be opened now."""
        if not self.is_ready:
            return 0
        return max(0, self._peer.max_concurrent_streams - len(self._calls))

    def open(self, headers: Fields, message: bytes) -> int:
        """Opens a call with headers of its own and returns its stream number. Needs `room`."""
        return self._calls.open(self._heads.encode(headers), message)

    def cancel(self, stream: int) -> None:
        """Resets the stream; there are no more events for it."""
        self._calls.cancel(stream)

    def ping(self) -> None:
        """Asks the peer for a sign of life; whatever it sends next is one."""
        self._sending.put(_PING)

    def output(self, at_most: int) -> bytes:
        """The bytes to write now: all control frames, and about `at_most` bytes of DATA."""
        return self._sending.take(at_most)

    def receive(self, data: bytes) -> list[Event]:
        if not self.why_closed:
            try:
                for frame in self._frames.push(data):
                    try:
                        self._handle(frame)
                    except StreamFault as fault:
                        self._calls.fail(frame[2], fault)
            except ConnectionFault as fault:
                reason = _explained(fault, data, is_http2=self._has_settings)
                self._close(fault.code, StatusCode.INTERNAL, reason)
        events, self._calls.events = self._calls.events, []
        return events

    def close(self, reason: str) -> list[Event]:
        """Ends all running calls, and sends a GOAWAY."""
        if not self.is_closed:
            self._close(ErrorCode.NO_ERROR, StatusCode.UNAVAILABLE, reason)
        events, self._calls.events = self._calls.events, []
        return events

    def _close(self, code: ErrorCode, status: StatusCode, reason: str) -> None:
        self.why_closed = reason
        self._calls.end_all(Status(status, reason))
        self._sending.put(frames.go_away(code, reason))
        self._calls.events.append(Changed())

    def _handle(self, frame: Frame) -> None:
        kind, flags, stream, payload = frame
        if kind == _DATA and not self._blocks.stream:
            self._window.receive(len(payload))
            if credit := self._window.credit():  # at once, so that no stream stops another
                self._sending.put(frames.window_update(0, credit))
            self._calls.data(flags, stream, payload)
        elif self._blocks.stream and kind != Kind.CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block was not continued")
        elif not self._has_settings and kind != Kind.SETTINGS:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        elif kind in CONNECTION_KINDS:
            self._handle_connection(kind, flags, stream, payload)
        else:
            self._handle_stream(kind, flags, stream, payload)

    def _handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Ignores PRIORITY and unknown kinds."""
        if kind in (Kind.HEADERS, Kind.CONTINUATION):
            if headers := self._blocks.push(kind, flags, stream, payload):
                self._calls.headers(headers)
        elif kind == Kind.RST_STREAM:
            self._calls.reset(stream, frames.reset_code(payload))
        elif kind == Kind.WINDOW_UPDATE:
            increment = frames.increment(stream, payload)
            if stream:
                self._calls.widen(stream, increment)
            else:
                self._sending.widen(increment)
        elif kind == Kind.PUSH_PROMISE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a PUSH_PROMISE")

    def _handle_connection(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            reason = f"a {Kind(kind).name} on stream {stream}"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)
        if kind == Kind.SETTINGS:
            self._settings(flags, payload)
        elif kind == Kind.PING:
            self._ping(flags, payload)
        else:
            self._go_away(payload)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS ACK with settings")
            self._is_acknowledged = True
        else:
            window = self._peer.initial_window
            self._peer.update(payload)
            self._calls.widen_all(self._peer.initial_window - window)
            self._heads.resize(self._peer.header_table_size)
            self._has_settings = True
            self._sending.answer(frames.ACKNOWLEDGED)
        self._calls.events.append(Changed())

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes")
        if not flags & frames.ACK:
            self._sending.answer(frames.frame(Kind.PING, frames.ACK, 0, payload))

    def _go_away(self, payload: bytes) -> None:
        last, code, text = frames.parse_go_away(payload)
        self._has_gone_away = True
        self._calls.refuse_above(last, f"the peer goes away: {code_name(code)} {text!r}")
        self._calls.events.append(Changed())


def _preface(limits: Http2Limits) -> bytes:
    ours = frames.settings(
        {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
        }
    )
    wider = limits.connection_window - DEFAULT_WINDOW
    return frames.PREFACE + ours + (frames.window_update(0, wider) if wider else b"")


def _explained(fault: ConnectionFault, data: bytes, *, is_http2: bool) -> str:
    if is_http2:
        return f"the peer violated the protocol, {fault}"
    return f"the peer does not speak HTTP/2: {fault}; it sent {data[:40]!r}"
