"""The client's side of an HTTP/2 connection that carries gRPC calls with one request each.

Source: RFC 9113. Pure: `receive` takes the bytes that the socket gave, `output` returns the bytes
to write. Called by streams.link.
"""

from __future__ import annotations

from grpc import StatusCode

from proxy.triton.http2 import frames, peer_settings
from proxy.triton.http2.calls import Calls, Http2Limits
from proxy.triton.http2.events import Changed, Event
from proxy.triton.http2.faults import ConnectionFault, ErrorCode
from proxy.triton.http2.frame_handler import FrameHandler
from proxy.triton.http2.frames import Kind
from proxy.triton.http2.head_encoder import Fields, HeadEncoder
from proxy.triton.http2.header_blocks import MAX_BLOCK
from proxy.triton.http2.peer_settings import DEFAULT_WINDOW, PeerSettings
from proxy.triton.http2.send_queue import SendQueue
from proxy.triton.http2.status import Status

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
        self._handler = FrameHandler(
            self._calls,
            self._sending,
            self._peer,
            self._heads,
            connection_window=limits.connection_window,
        )
        self.why_closed = ""
        self._sending.put(_preface(limits))

    @property
    def is_ready(self) -> bool:
        """Whether both sides' settings are in force, and calls can be opened."""
        return self._handler.has_settled and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        """Whether no more calls can be opened."""
        is_used_up = self._calls.numbers.are_used_up
        return self.is_closed or self._handler.has_gone_away or is_used_up

    @property
    def is_closed(self) -> bool:
        return bool(self.why_closed)

    @property
    def has_room(self) -> bool:
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more calls can be opened now."""
        free = self._peer.max_concurrent_streams - len(self._calls)
        return max(0, free) if self.is_ready else 0

    @property
    def has_output(self) -> bool:
        return not self._sending.is_empty

    def open(self, headers: Fields, message: bytes) -> int:
        """Opens a call with headers of its own and returns its stream number. Needs `has_room`."""
        return self._calls.open(self._heads.encode(headers), message)

    def cancel(self, stream: int) -> None:
        """Resets the stream; there are no more events for it."""
        self._calls.cancel(stream)

    def message_was_read(self, stream: int) -> None:
        """Lets the peer send more on this stream."""
        self._calls.message_was_read(stream)

    def ping(self) -> None:
        """Asks the peer for a sign of life; whatever it sends next is one."""
        self._sending.put(_PING)

    def output(self, at_most: int) -> bytes:
        """The bytes to write now: all control frames, and about `at_most` bytes of DATA."""
        return self._sending.take(at_most)

    def receive(self, data: bytes) -> list[Event]:
        if not self.is_closed:
            try:
                self._handler.push(data)
            except ConnectionFault as fault:
                reason = _explained(fault, data, is_http2=self._handler.has_settings)
                self._close(fault.code, StatusCode.INTERNAL, reason)
        return self._calls.take_events()

    def close(self, reason: str) -> list[Event]:
        """Ends all running calls, and sends a GOAWAY."""
        if not self.is_closed:
            self._close(ErrorCode.NO_ERROR, StatusCode.UNAVAILABLE, reason)
        return self._calls.take_events()

    def _close(self, code: ErrorCode, status: StatusCode, reason: str) -> None:
        self.why_closed = reason
        self._calls.end_all(Status(status, reason))
        self._sending.put(frames.go_away(code, reason))
        self._calls.events.append(Changed())


def _preface(limits: Http2Limits) -> bytes:
    ours = peer_settings.settings(
        {
            peer_settings.ENABLE_PUSH: 0,
            peer_settings.INITIAL_WINDOW_SIZE: limits.stream_window,
            peer_settings.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
        }
    )
    wider = limits.connection_window - DEFAULT_WINDOW
    return frames.PREFACE + ours + (frames.window_update(0, wider) if wider else b"")


def _explained(fault: ConnectionFault, data: bytes, *, is_http2: bool) -> str:
    if is_http2:
        return f"the peer violated the protocol, {fault}"
    return f"the peer does not speak HTTP/2: {fault}; it sent {data[:40]!r}"
