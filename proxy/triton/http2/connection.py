"""The client's side of an HTTP/2 connection that carries gRPC calls of one request each.

Source: RFC 9113. Pure: `receive` takes what the socket gave, `output` is what it must get.
"""

from __future__ import annotations

from grpc import StatusCode

from triton_openai.proxy.triton.http2 import frames, peer_settings
from triton_openai.proxy.triton.http2.calls import Calls, Limits
from triton_openai.proxy.triton.http2.events import Changed, Event
from triton_openai.proxy.triton.http2.faults import (
    ConnectionFault,
    ErrorCode,
    StreamFault,
    code_name,
)
from triton_openai.proxy.triton.http2.frames import Frame, FrameReader, Kind
from triton_openai.proxy.triton.http2.head_encoder import Fields, HeadEncoder
from triton_openai.proxy.triton.http2.header_blocks import MAX_BLOCK, HeaderBlocks
from triton_openai.proxy.triton.http2.outbox import Outbox
from triton_openai.proxy.triton.http2.peer_settings import DEFAULT_WINDOW, PeerSettings
from triton_openai.proxy.triton.http2.receive_window import ReceiveWindow
from triton_openai.proxy.triton.http2.status import Status

CONNECTION_KINDS = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)
_DATA = int(Kind.DATA)  # looked at for every frame
_PING = frames.frame(Kind.PING, 0, 0, b"are you?")


class Connection:
    """What the peer does wrong never raises: it ends a call, or all of them and the connection.

    `shared`: the headers that every call begins with.
    """

    def __init__(self, limits: Limits, shared: Fields = ()) -> None:
        self._peer = PeerSettings()
        self._outbox = Outbox(self._peer)
        self._calls = Calls(limits, self._peer, self._outbox)
        self._frames = FrameReader()
        self._blocks = HeaderBlocks()
        self._heads = HeadEncoder(shared)
        self._window = ReceiveWindow(limits.connection_window, ConnectionFault)
        self._has_settings = False
        self._is_acknowledged = False
        self.is_leaving = False  # no call can be opened any more
        self.why_closed = ""
        self._outbox.put(_preface(limits))

    @property
    def is_ready(self) -> bool:
        """The settings of both sides are in force."""
        return self._has_settings and self._is_acknowledged and not self.is_leaving

    @property
    def is_closed(self) -> bool:
        return bool(self.why_closed)

    @property
    def has_room(self) -> bool:
        return self.room > 0

    @property
    def room(self) -> int:
        """So many calls can be opened now."""
        free = self._peer.max_concurrent_streams - len(self._calls)
        return max(0, free) if self.is_ready else 0

    @property
    def has_output(self) -> bool:
        return not self._outbox.is_empty

    def open(self, headers: Fields, message: bytes) -> int:
        """Where it `has_room`: sends a call with headers of its own, and gives its number."""
        stream = self._calls.open(self._heads.encode(headers), message)
        self.is_leaving = self.is_leaving or self._calls.numbers.are_used_up
        return stream

    def cancel(self, stream: int) -> None:
        """No event of it comes any more."""
        self._calls.cancel(stream)

    def took(self, stream: int) -> None:
        """Somebody has read a message of it, so the peer may send more."""
        self._calls.took(stream)

    def ping(self) -> None:
        """Whatever the peer sends next shows that it is there."""
        self._outbox.put(_PING)

    def output(self, at_most: int) -> bytes:
        """What is to be written now: all control frames, and DATA of about `at_most` bytes."""
        return self._outbox.take(at_most)

    def receive(self, data: bytes) -> list[Event]:
        if not self.is_closed:
            try:
                for frame in self._frames.push(data):
                    try:
                        self._handle(frame)
                    except StreamFault as fault:
                        self._calls.fail(frame[2], fault)
            except ConnectionFault as fault:
                told = _explained(fault, data, has_settings=self._has_settings)
                self._close(fault.code, StatusCode.INTERNAL, told)
        events, self._calls.events = self._calls.events, []
        return events

    def close(self, reason: str) -> list[Event]:
        """All calls that run end with it. The peer is told, where it can still read."""
        if not self.is_closed:
            self._close(ErrorCode.NO_ERROR, StatusCode.UNAVAILABLE, reason)
        events, self._calls.events = self._calls.events, []
        return events

    def _close(self, code: ErrorCode, status: StatusCode, reason: str) -> None:
        self.is_leaving, self.why_closed = True, reason
        self._calls.end_all(Status(status, reason))
        self._outbox.put(frames.go_away(code, reason))
        self._calls.events.append(Changed())

    def _handle(self, frame: Frame) -> None:
        kind, flags, stream, payload = frame
        if kind == _DATA and not self._blocks.stream:
            self._window.receive(len(payload))
            if credit := self._window.credit():  # at once, so that no stream stops another
                self._outbox.put(frames.window_update(0, credit))
            self._calls.data(flags, stream, payload)
        elif self._blocks.stream and kind != Kind.CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block was not continued")
        elif not self._has_settings and kind != Kind.SETTINGS:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is no SETTINGS")
        else:
            self._handle_rare(kind, flags, stream, payload)

    def _handle_rare(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """PRIORITY, and what nobody knows, is ignored."""
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
                self._outbox.widen(increment)
        elif kind == Kind.PUSH_PROMISE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a PUSH_PROMISE")
        elif kind in CONNECTION_KINDS and stream:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a {Kind(kind).name} on stream {stream}"
            )
        elif kind == Kind.SETTINGS:
            self._settings(flags, payload)
        elif kind == Kind.PING:
            if answer := _pong(flags, payload):
                self._outbox.answer(answer)
        elif kind == Kind.GOAWAY:
            self._go_away(payload)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement that asks")
            self._is_acknowledged = True
        else:
            window = self._peer.initial_window
            self._peer.update(payload)
            self._calls.widen_all(self._peer.initial_window - window)
            self._heads.resize(self._peer.header_table_size)
            self._has_settings = True
            self._outbox.answer(peer_settings.ACKNOWLEDGED)
        self._calls.events.append(Changed())

    def _go_away(self, payload: bytes) -> None:
        last, code, said = frames.parse_go_away(payload)
        reason = f"the peer goes away: {code_name(code)} {said!r}"
        self.is_leaving = True
        self._calls.refuse_above(last, reason)
        self._calls.events.append(Changed())


def _preface(limits: Limits) -> bytes:
    ours = peer_settings.settings(
        {
            peer_settings.ENABLE_PUSH: 0,
            peer_settings.INITIAL_WINDOW_SIZE: limits.stream_window,
            peer_settings.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
        }
    )
    wider = limits.connection_window - DEFAULT_WINDOW
    return frames.PREFACE + ours + (frames.window_update(0, wider) if wider else b"")


def _explained(fault: ConnectionFault, data: bytes, *, has_settings: bool) -> str:
    if has_settings:
        return f"the peer broke the protocol, {fault}"
    return f"the peer does not speak HTTP/2: {fault}; it sent {data[:40]!r}"


def _pong(flags: int, payload: bytes) -> bytes:
    """To a PING that asks; else nothing."""
    if len(payload) != 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes")
    return b"" if flags & frames.ACK else frames.frame(Kind.PING, frames.ACK, 0, payload)
