"""One connection of the lean transport: its socket, its framing and its streams."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tritonclient.grpc import service_pb2
from typing_extensions import assert_never

from proxy.triton.http2.calls import CallEnded, CallRefused, Changed, Event, MessageArrived
from proxy.triton.http2.connection import Connection
from proxy.triton.http2.headers import Fields
from proxy.triton.http2.status import Status
from proxy.triton.streams.lean_stream import Carrier, LeanStream
from proxy.triton.streams.leases import PARAMETER, Cancel, Leases, log_refusal

WRITE_AT_MOST = 256 * 1024  # bytes given to the transport before it may pause us
CLOSE_TIMEOUT_S = 1.0

# Pauses between two reads of a busy connection: waking up for a single message costs more than
# handling it; in a pause messages gather in the socket.
FEW_STREAMS = 4  # with so many or fewer, there are no pauses
STREAMS_PER_SECOND = 16_000.0  # 1 ms of pause with 16 streams, 4 ms with 64
LONGEST_PAUSE_S = 0.004

# A gRPC server closes a connection on the third PING since its last DATA or HEADERS that arrives
# within five minutes of the previous one (`grpc.http2.max_ping_strikes`,
# `grpc.http2.min_ping_interval_without_data_ms`).
MAX_QUICK_PINGS = 2
SLOW_PING_S = 310.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveTimes:
    """After `quiet_s` of silence with running calls a PING is sent; after `answer_s` more without
    an answer the connection is given up.
    """

    quiet_s: float = 30.0
    answer_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Owner:
    """The pool's callbacks.

    changed: the link has room again, or is leaving. elsewhere: places a stream for which there is
    no room here. refused: a stream that the server has not processed, and the reason.
    """

    changed: Callable[[Link], None]
    elsewhere: Callable[[LeanStream], None]
    refused: Callable[[LeanStream, str], None]


class Link(asyncio.Protocol):
    """Carries streams from `start` to their end. Made by lean_http2, owned by the pool."""

    def __init__(self, connection: Connection, times: KeepaliveTimes, owner: Owner) -> None:
        self._connection = connection
        self._owner = owner
        self._by_number: dict[int, LeanStream] = {}  # by HTTP/2 stream; leases' calls, too
        self._leases = Leases(self._hold)
        self._is_retired = False
        self._can_write = True
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._keepalive = Keepalive(
            times, has_calls=lambda: self._running > 0, ping=self._ping, give_up=self.abort
        )

    @property
    def has_room(self) -> bool:
        return self._connection.room > 0

    @property
    def is_leaving(self) -> bool:
        """Whether it gets no more streams, except siblings of its own."""
        return self._is_retired or self._connection.is_leaving

    async def wait_ready(self) -> None:
        """Raises ConnectionError if it was closed, or the server does not speak HTTP/2."""
        await self._ready

    def place(self, stream: LeanStream) -> None:
        if self.has_room:
            self.start(stream)
        else:
            self._owner.elsewhere(stream)

    def start(self, stream: LeanStream) -> None:
        """Needs `has_room`."""
        timeout = f"{max(1, math.ceil(stream.left_s * 1000))}m"
        message = stream.request + self._lease_parameter(stream)
        self._open(stream, [("grpc-timeout", timeout), *stream.metadata], message)
        self._flush()

    def cancel(self, stream: LeanStream) -> None:
        self._remove(stream.number)
        self._connection.cancel(stream.number)
        self._flush()
        self._owner.changed(self)

    def message_was_read(self, stream: LeanStream) -> None:
        if self._connection.message_was_read(stream.number):
            self._flush()

    async def close(self) -> None:
        """Ends its streams, and waits until the socket is closed."""
        if not self._connection.is_closed:
            self._shut("the proxy closes its connections")
        await self.closed

    def retire(self) -> None:
        """Called when another link has replaced it."""
        self._is_retired = True
        self.close_when_idle()

    def close_when_idle(self) -> None:
        if not self._running and not self._connection.is_closed:
            self._shut("the last call on a retired connection has ended")

    def abort(self, reason: str) -> None:
        """Closes it at once, because the server does not respond."""
        self._dispatch(self._connection.close(reason))
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._keepalive.start()
        self._flush()

    def data_received(self, data: bytes) -> None:
        events = self._connection.receive(data)
        self._keepalive.data_arrived(has_events=bool(events))
        self._dispatch(events)
        self._flush()
        if self._connection.why_closed:
            self._close_socket()
        elif len(self._by_number) > FEW_STREAMS:
            pause_reading(self._transport, streams=self._running)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._keepalive.stop()
        reason = f"the connection was lost: {error or 'the server closed it'}"
        self._dispatch(self._connection.close(reason))
        self._leases.close()
        self.closed.set_result(None)

    def _dispatch(self, events: list[Event]) -> None:
        has_changed = False
        for event in events:
            match event:
                case MessageArrived():
                    self._by_number[event.stream].deliver(event.message)
                case CallEnded():
                    self._remove(event.stream).end(event.status)
                    has_changed = True
                case CallRefused():
                    self._owner.refused(self._remove(event.stream), event.reason)
                    has_changed = True
                case Changed():
                    has_changed = True
                case _:
                    assert_never(event)
        if has_changed:
            self._settle()
            self._owner.changed(self)

    def _settle(self) -> None:
        if self._ready.done():
            return
        if self._connection.is_ready:
            self._ready.set_result(None)
        elif self._connection.is_leaving:
            why = self._connection.why_closed or "the server closed it at once"
            self._ready.set_exception(ConnectionError(why))
            self._ready.exception()  # retrieved, since nobody may wait for it

    def _ping(self) -> None:
        self._connection.ping()
        self._flush()

    def _flush(self) -> None:
        while self._can_write and self._connection.has_output():
            self._transport.write(self._connection.output(WRITE_AT_MOST))

    def _shut(self, reason: str) -> None:
        self._dispatch(self._connection.close(reason))
        self._flush()
        self._close_socket()

    def _close_socket(self) -> None:
        """Gives the server CLOSE_TIMEOUT_S to read what is left."""
        self._transport.close()
        timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
        self.closed.add_done_callback(lambda _: timer.cancel())

    @property
    def _running(self) -> int:
        """Streams without the calls that hold leases."""
        return len(self._by_number) - self._leases.calls

    def _remove(self, number: int) -> LeanStream:
        """Called when a stream has ended, or moves to another connection."""
        stream = self._by_number.pop(number)
        if stream.terms is not None:
            self._leases.leave(stream.terms)
        return stream

    def _open(self, stream: LeanStream, headers: Fields, message: bytes) -> None:
        stream.carrier = self
        stream.number = self._connection.open(headers, message)
        self._by_number[stream.number] = stream

    def _lease_parameter(self, stream: LeanStream) -> bytes:
        """Appended to a request, adds the lease's id to its parameters: protobuf merges them."""
        if stream.terms is None:
            return b""
        message = service_pb2.ModelInferRequest()
        message.parameters[PARAMETER].string_param = self._leases.enter(stream.terms)
        return bytes(message.SerializeToString())

    def _hold(
        self, request: service_pb2.ModelInferRequest, ended: Callable[[], None]
    ) -> Cancel | None:
        if self._connection.room < 2:  # for this call, and for the stream that needs the lease
            return None
        call = _LeaseCall(self, ended)
        self._open(call, [], request.SerializeToString())
        return call.cancel


class _LeaseCall(LeanStream):
    """A call without a reader or a deadline. Calls `ended` once."""

    __slots__ = ("_ended",)

    def __init__(self, home: Carrier, ended: Callable[[], None]) -> None:
        super().__init__(home, b"", math.inf)
        self._ended = ended

    def deliver(self, message: bytes) -> None:
        self._message_was_read()
        log_refusal(message)

    def end(self, status: Status) -> None:
        if self._status is None:
            super().end(status)
            self._ended()


class Keepalive:
    """Detects a server that vanished without closing the connection, by PINGs after silence.

    Runs from `start` to `stop`. Any bytes from the server count as an answer.
    """

    def __init__(
        self,
        times: KeepaliveTimes,
        *,
        has_calls: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self._times = times
        self._has_calls = has_calls
        self._ping = ping
        self._give_up = give_up
        self._has_data = True
        self._is_waiting = False
        self._pings = 0  # since the last event
        self._pinged_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._wait(self._times.quiet_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_arrived(self, *, has_events: bool) -> None:
        self._has_data = True
        if has_events:
            self._pings = 0

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        has_data, self._has_data = self._has_data, False
        if self._is_waiting and not has_data:
            self._give_up(f"the server did not answer a PING for {self._times.answer_s:g} seconds")
            return
        self._is_waiting = not has_data and self._has_calls() and self._may_ping()
        if self._is_waiting:
            self._pings += 1
            self._pinged_at = self._loop.time()
            self._ping()
        self._wait(self._times.answer_s if self._is_waiting else self._times.quiet_s)

    def _may_ping(self) -> bool:
        return self._pings < MAX_QUICK_PINGS or self._loop.time() - self._pinged_at >= SLOW_PING_S


def pause_reading(transport: asyncio.Transport, *, streams: int) -> None:
    """Called after a read."""
    if streams > FEW_STREAMS:
        transport.pause_reading()
        pause_s = min(LONGEST_PAUSE_S, streams / STREAMS_PER_SECOND)
        asyncio.get_running_loop().call_later(pause_s, _resume_reading, transport)


def _resume_reading(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.resume_reading()
