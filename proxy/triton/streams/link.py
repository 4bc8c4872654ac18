"""One connection of the lean transport: its socket, its framing and its streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from typing_extensions import assert_never

from proxy.triton.http2.connection import Connection
from proxy.triton.http2.events import (
    CallEnded,
    CallRefused,
    Changed,
    Event,
    MessageArrived,
)
from proxy.triton.streams.keepalive import Keepalive, KeepaliveTimes
from proxy.triton.streams.lean_stream import LeanStream
from proxy.triton.streams.link_streams import LinkStreams
from proxy.triton.streams.read_pauses import pause_reading

WRITE_AT_MOST = 256 * 1024  # bytes given to the transport before it may pause us
CLOSE_TIMEOUT_S = 1.0


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
        self._streams = LinkStreams(self, connection)
        self._is_retired = False
        self._can_write = True
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._keepalive = Keepalive(
            times, has_calls=lambda: bool(self._streams), ping=self._ping, give_up=self.abort
        )

    @property
    def has_room(self) -> bool:
        return self._connection.has_room

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
        self._streams.start(stream)
        self._flush()

    def cancel(self, stream: LeanStream) -> None:
        self._streams.remove(stream.number)
        self._connection.cancel(stream.number)
        self._flush()
        self._owner.changed(self)

    def message_was_read(self, stream: LeanStream) -> None:
        self._connection.message_was_read(stream.number)
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
        if not self._streams and not self._connection.is_closed:
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
        if self._connection.is_closed:
            self._close_socket()
        else:
            pause_reading(self._transport, streams=len(self._streams))

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._keepalive.stop()
        reason = f"the connection was lost: {error or 'the server closed it'}"
        self._dispatch(self._connection.close(reason))
        self._streams.close()
        self.closed.set_result(None)

    def _dispatch(self, events: list[Event]) -> None:
        has_changed = False
        for event in events:
            match event:
                case MessageArrived():
                    self._streams.by_number[event.stream].deliver(event.message)
                case CallEnded():
                    self._streams.remove(event.stream).end(event.status)
                    has_changed = True
                case CallRefused():
                    self._owner.refused(self._streams.remove(event.stream), event.reason)
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
        while self._can_write and self._connection.has_output:
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
