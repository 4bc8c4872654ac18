"""One connection of the lean transport: its socket, its framing and its streams."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from google.protobuf.message import DecodeError
from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self, assert_never

from proxy.triton.http2.connection import (
    CallEnded,
    CallRefused,
    Changed,
    Connection,
    Event,
    MessageArrived,
)
from proxy.triton.http2.status import Status
from proxy.triton.streams.leases import PARAMETER, Cancel, Leases, LeaseTerms, log_refusal

# A released stream that has not ended by then is cancelled.
RELEASE_TIMEOUT_S = 5.0

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

Metadata = tuple[tuple[str, str], ...]  # of a call; names in lower case
_parsed = service_pb2.ModelStreamInferResponse.FromString


class StreamFailed(Exception):
    """A gRPC status: a code, and the server's or the transport's text."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


class Carrier(Protocol):
    """What a stream is on at present: a link, or the queue of those that wait for one."""

    def place(self, stream: LeanStream) -> None:
        """Starts it, at once or when there is room."""
        ...

    def message_was_read(self, stream: LeanStream) -> None:
        """Lets the server send more on this stream."""
        ...

    def cancel(self, stream: LeanStream) -> None: ...


class LeanStream:
    """The responses of one call of ModelStreamInfer, in order. Its opener ends it, by `cancel` or
    `release`. If the call failed, iterating raises StreamFailed after the last response.

    `deliver` and `end` are called by its carrier.

    home: the carrier for its siblings once it has ended. number: its HTTP/2 stream on its link.
    request: kept while it may have to be sent again, then empty. timeout_s: may be infinite.
    """

    __slots__ = (
        "_home",
        "_is_released",
        "_loop",
        "_status",
        "_timer",
        "_unread",
        "_waiter",
        "carrier",
        "deadline",
        "metadata",
        "number",
        "replays",
        "request",
        "terms",
    )

    def __init__(
        self,
        home: Carrier,
        request: bytes,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
    ) -> None:
        self._home = home
        self._loop = asyncio.get_running_loop()
        self.deadline = self._loop.time() + timeout_s
        self._timer: asyncio.TimerHandle | None = None
        if not math.isinf(timeout_s):
            self._timer = self._loop.call_at(self.deadline, self._expire)
        self._unread: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._status: Status | None = None
        self._is_released = False
        self.request = request
        self.terms = terms
        self.metadata = metadata
        self.carrier: Carrier | None = None
        self.number = 0
        self.replays = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse:
        while not self._unread:
            if (status := self._status) is not None:
                if status.is_ok:
                    raise StopAsyncIteration
                raise StreamFailed(status.code, status.details)
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._unread.popleft()
        if self.carrier is not None:
            self.carrier.message_was_read(self)
        try:
            return _parsed(message)
        except DecodeError as error:
            self.cancel()
            raise StreamFailed(StatusCode.INTERNAL, "a message cannot be parsed") from error

    def open_sibling(
        self, request: service_pb2.ModelInferRequest, *, timeout_s: float
    ) -> LeanStream:
        """Opens a call to the same server while this one runs; later, to any.

        There may be several servers behind one address.
        """
        stream = LeanStream(self._home, request.SerializeToString(), timeout_s)
        (self.carrier or self._home).place(stream)
        return stream

    def cancel(self) -> None:
        """Ends it now, on the server too. Does nothing if it has ended."""
        self._cancel(Status(StatusCode.CANCELLED, "cancelled by the proxy"))
        self._unread.clear()

    def release(self) -> None:
        """Discards what still arrives until the server ends it, for RELEASE_TIMEOUT_S at most."""
        if self._status is not None:
            return
        self._is_released = True
        while self._unread:
            self._unread.popleft()
            self._message_was_read()
        self.end_soon()

    def end_soon(self) -> None:
        """Cancels it after RELEASE_TIMEOUT_S, if the server has not ended it by then."""
        if self._status is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(RELEASE_TIMEOUT_S, self.cancel)

    def deliver(self, message: bytes) -> None:
        self.request = b""
        if self._is_released:
            self._message_was_read()
            return
        self._unread.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)  # once, however many messages arrive before it runs

    def end(self, status: Status) -> None:
        """Messages that were delivered before can still be read."""
        if self._status is None:
            self._status = status
            if self._timer is not None:
                self._timer.cancel()
            self.carrier, self.request = None, b""
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def _message_was_read(self) -> None:
        if self.carrier is not None:
            self.carrier.message_was_read(self)

    def _expire(self) -> None:
        self._cancel(Status(StatusCode.DEADLINE_EXCEEDED, "the call exceeded its deadline"))

    def _cancel(self, status: Status) -> None:
        if self.carrier is not None:
            self.carrier.cancel(self)
        self.end(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveTimes:
    """After `quiet_s` of silence with running calls a PING is sent; after `answer_s` more without
    an answer the connection is given up.
    """

    quiet_s: float = 30.0
    answer_s: float = 10.0


class Owner(Carrier, Protocol):
    """The owner of the links, which carries the streams that wait for one."""

    def link_changed(self, link: Link) -> None:
        """The link has room again, or is leaving."""
        ...

    def replay(self, stream: LeanStream, reason: str) -> None:
        """The server has not processed the stream."""
        ...


class Link(asyncio.Protocol):
    """Carries streams from `start` to their end."""

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
            self._owner.place(stream)

    def start(self, stream: LeanStream) -> None:
        """Needs `has_room`. What starts in one turn of the event loop is one write."""
        left_ms = math.ceil((stream.deadline - self._loop.time()) * 1000)
        message = stream.request
        if stream.terms is not None:  # adds the lease to the parameters: protobuf merges them
            lease = service_pb2.ModelInferRequest()
            lease.parameters[PARAMETER].string_param = self._leases.enter(stream.terms)
            message += lease.SerializeToString()
        headers = [("grpc-timeout", f"{max(1, left_ms)}m"), *stream.metadata]
        self._open(stream, headers, message)
        self._loop.call_soon(self._flush)

    def cancel(self, stream: LeanStream) -> None:
        self._remove(stream.number)
        self._connection.cancel(stream.number)
        self._flush()
        self._owner.link_changed(self)

    def message_was_read(self, stream: LeanStream) -> None:
        if self._connection.message_was_read(stream.number):
            self._flush()

    async def close(self) -> None:
        """Ends its streams, and waits until the socket is closed."""
        self._shut("the proxy closes its connections")
        await self.closed

    def retire(self) -> None:
        """Called when another link has replaced it."""
        self._is_retired = True
        self.close_when_idle()

    def close_when_idle(self) -> None:
        if not self._running:
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
        self._keepalive.has_data = True
        if events:
            self._keepalive.pings = 0
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
                    continue
                case CallEnded():
                    self._remove(event.stream).end(event.status)
                case CallRefused():
                    self._owner.replay(self._remove(event.stream), event.reason)
                case Changed():
                    pass
                case _:
                    assert_never(event)
            has_changed = True
        if has_changed:
            if not self._ready.done():
                self._settle()
            self._owner.link_changed(self)

    def _settle(self) -> None:
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
        if self._transport.is_closing():  # since a stream was started in this turn
            return
        while self._can_write and (data := self._connection.output(WRITE_AT_MOST)):
            self._transport.write(data)

    def _shut(self, reason: str) -> None:
        if not self._connection.why_closed:
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

    def _open(self, stream: LeanStream, headers: list[tuple[str, str]], message: bytes) -> None:
        stream.carrier = self
        stream.number = self._connection.open(headers, message)
        self._by_number[stream.number] = stream

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

    Runs from `start` to `stop`. has_data: set when any bytes arrive, which count as an answer.
    pings: how many were sent since the last event, set to 0 by one.
    """

    def __init__(
        self,
        times: KeepaliveTimes,
        *,
        has_calls: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self.has_data = True
        self.pings = 0
        self._times = times
        self._has_calls = has_calls
        self._ping = ping
        self._give_up = give_up
        self._is_waiting = False
        self._pinged_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._times.quiet_s, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        has_data, self.has_data, now = self.has_data, False, self._loop.time()
        if self._is_waiting and not has_data:
            self._give_up(f"the server did not answer a PING for {self._times.answer_s:g} seconds")
            return
        may_ping = self.pings < MAX_QUICK_PINGS or now - self._pinged_at >= SLOW_PING_S
        self._is_waiting = not has_data and self._has_calls() and may_ping
        if self._is_waiting:
            self.pings += 1
            self._pinged_at = now
            self._ping()
        wait_s = self._times.answer_s if self._is_waiting else self._times.quiet_s
        self._timer = self._loop.call_later(wait_s, self._look)


def pause_reading(transport: asyncio.Transport, *, streams: int) -> None:
    """Called after a read."""
    if streams > FEW_STREAMS:
        transport.pause_reading()
        pause_s = min(LONGEST_PAUSE_S, streams / STREAMS_PER_SECOND)
        asyncio.get_running_loop().call_later(pause_s, _resume_reading, transport)


def _resume_reading(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.resume_reading()
