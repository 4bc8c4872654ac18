"""Acts on the frames that the peer sends. Called by `connection`."""

from __future__ import annotations

from proxy.triton.http2 import frames, peer_settings
from proxy.triton.http2.calls import Calls
from proxy.triton.http2.events import Changed
from proxy.triton.http2.faults import (
    ConnectionFault,
    ErrorCode,
    StreamFault,
    code_name,
)
from proxy.triton.http2.frames import Frame, FrameReader, Kind
from proxy.triton.http2.head_encoder import HeadEncoder
from proxy.triton.http2.header_blocks import HeaderBlocks
from proxy.triton.http2.peer_settings import PeerSettings
from proxy.triton.http2.receive_window import ReceiveWindow
from proxy.triton.http2.send_queue import SendQueue

CONNECTION_KINDS = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)
_DATA = int(Kind.DATA)  # compared with for every frame


class FrameHandler:
    """Passes each frame to the calls, the settings or the windows of its connection."""

    def __init__(
        self,
        calls: Calls,
        sending: SendQueue,
        peer: PeerSettings,
        heads: HeadEncoder,
        *,
        connection_window: int,
    ) -> None:
        self._calls = calls
        self._sending = sending
        self._peer = peer
        self._heads = heads
        self._frames = FrameReader()
        self._blocks = HeaderBlocks()
        self._window = ReceiveWindow(connection_window, ConnectionFault)
        self._is_acknowledged = False
        self.has_settings = False
        self.has_gone_away = False

    @property
    def has_settled(self) -> bool:
        """Whether the settings of both sides are in force."""
        return self.has_settings and self._is_acknowledged

    def push(self, data: bytes) -> None:
        """Handles the frames that `data` completes. Raises ConnectionFault."""
        for frame in self._frames.push(data):
            try:
                self._handle(frame)
            except StreamFault as fault:
                self._calls.fail(frame[2], fault)

    def _handle(self, frame: Frame) -> None:
        kind, flags, stream, payload = frame
        if kind == _DATA and not self._blocks.stream:
            self._window.receive(len(payload))
            if credit := self._window.credit():  # at once, so that no stream stops another
                self._sending.put(frames.window_update(0, credit))
            self._calls.data(flags, stream, payload)
        elif self._blocks.stream and kind != Kind.CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block was not continued")
        elif not self.has_settings and kind != Kind.SETTINGS:
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
            self.has_settings = True
            self._sending.answer(peer_settings.ACKNOWLEDGED)
        self._calls.events.append(Changed())

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes")
        if not flags & frames.ACK:
            self._sending.answer(frames.frame(Kind.PING, frames.ACK, 0, payload))

    def _go_away(self, payload: bytes) -> None:
        last, code, text = frames.parse_go_away(payload)
        self.has_gone_away = True
        self._calls.refuse_above(last, f"the peer goes away: {code_name(code)} {text!r}")
        self._calls.events.append(Changed())
