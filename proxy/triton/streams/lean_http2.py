"""Streams over our own HTTP/2 framing, which costs a fraction of grpc.aio's CPU per response.

One connection carries all streams, so that one read brings messages of many.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from dataclasses import dataclass, field

from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.triton.http2.connection import Connection, Http2Limits
from proxy.triton.http2.status import Status
from proxy.triton.streams.leases import LeaseTerms
from proxy.triton.streams.link import (
    KeepaliveTimes,
    LeanStream,
    Link,
    Metadata,
)
from proxy.triton.target import MAX_RESPONSE_BYTES, Target

HEAD = (
    (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "triton-openai"),
)


MAX_REPLAYS = 1  # of a call that the server has not processed, as gRPC does (gRFC A6)
JITTER = 0.1  # of a link's age, so that not all proxies reconnect at once
MAX_LINKS = 8  # more than one only if the server limits concurrent streams


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanOptions:
    """backoff_s: the first pause after a failure to connect, and the longest one.

    max_age_s: of a connection before another replaces it, so that servers that joined later behind
    the address get streams, too; None for no limit.
    """

    limits: Http2Limits = field(default_factory=lambda: Http2Limits(max_message=MAX_RESPONSE_BYTES))
    keepalive: KeepaliveTimes = field(default_factory=KeepaliveTimes)
    connect_timeout_s: float = 5.0
    backoff_s: tuple[float, float] = (0.1, 1.0)
    max_age_s: float | None = None


class LeanHttp2Streams:
    """Calls of ModelStreamInfer, each with one request and many responses.

    Entered on the event loop that uses it. On exit, the streams that still run end. It owns the
    links, and carries the streams that wait for one; a failure to connect ends these.
    """

    def __init__(self, target: Target, options: LeanOptions | None = None) -> None:
        self._target = target
        self._options = options or LeanOptions()
        self._pause_s = 0.0  # before the next attempt to connect
        self._links: list[Link] = []
        self._open: set[Link] = set()  # including those that are leaving
        self._waiting: dict[LeanStream, None] = {}  # in order
        self._growing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._tls = self._target.tls()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.wait([self._growing])
            self._growing = None
        self._fail_waiting("the proxy closes its connections")
        await asyncio.gather(*(link.close() for link in self._open))

    def open(
        self,
        request: service_pb2.ModelInferRequest,
        *,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
    ) -> LeanStream:
        """Connects if necessary; a failure to connect fails the stream.

        With `terms` the stream runs under a lease of its connection, see leases.
        """
        stream = LeanStream(self, request.SerializeToString(), timeout_s, terms, metadata)
        self.place(stream)
        return stream

    def place(self, stream: LeanStream) -> None:
        """Starts it, at once or when a link has room."""
        stream.carrier = self
        self._waiting[stream] = None
        self._place_waiting()

    def cancel(self, stream: LeanStream) -> None:
        del self._waiting[stream]

    def message_was_read(self, stream: LeanStream) -> None:
        """Does nothing: a stream that waits for a link has no messages."""

    def link_changed(self, link: Link) -> None:
        if link.is_leaving:
            if link in self._links:
                self._links.remove(link)
            link.close_when_idle()
        if self._waiting:
            self._place_waiting()

    def replay(self, stream: LeanStream, reason: str) -> None:
        if not stream.request or stream.replays == MAX_REPLAYS:
            stream.end(Status(StatusCode.UNAVAILABLE, reason))
        else:
            stream.replays += 1
            self.place(stream)

    def _place_waiting(self) -> None:
        for link in self._links:
            while self._waiting and link.has_room:
                stream = next(iter(self._waiting))
                del self._waiting[stream]
                link.start(stream)
        if self._waiting and self._growing is None and len(self._links) < MAX_LINKS:
            self._growing = asyncio.get_running_loop().create_task(self._grow())

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            stream.end(Status(StatusCode.UNAVAILABLE, reason))

    async def _grow(self, old: Link | None = None) -> None:
        """Opens one link, which replaces `old`."""
        await asyncio.sleep(self._pause_s)
        try:
            link = await self._connect()
        except ConnectionError as error:
            first_s, longest_s = self._options.backoff_s
            self._pause_s = min(max(first_s, 2 * self._pause_s), longest_s)
            if not self._links:
                self._fail_waiting(str(error))
        else:
            self._pause_s = 0.0
            self._links.append(link)
            self._open.add(link)
            link.closed.add_done_callback(lambda _: self._open.discard(link))
            self._start_aging(link)
            if old is not None and old in self._links:
                self._links.remove(old)
                old.retire()
        self._growing = None
        self._place_waiting()

    def _start_aging(self, link: Link) -> None:
        if (max_age_s := self._options.max_age_s) is not None:
            age_s = max_age_s * random.uniform(1 - JITTER, 1 + JITTER)
            timer = asyncio.get_running_loop().call_later(age_s, self._renew, link)
            link.closed.add_done_callback(lambda _: timer.cancel())

    def _renew(self, old: Link) -> None:
        """Keeps the old link until there is a new one. After a failure it tries again later."""
        if old not in self._links:
            return
        self._start_aging(old)
        if self._growing is None:
            self._growing = asyncio.get_running_loop().create_task(self._grow(old))

    async def _connect(self) -> Link:
        """Raises ConnectionError."""
        timeout_s = self._options.connect_timeout_s
        try:
            return await asyncio.wait_for(self._ready_link(), timeout_s)
        except asyncio.TimeoutError:
            reason = f"no HTTP/2 connection within {timeout_s:g} seconds"
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot have an address
            reason = str(error)
        raise ConnectionError(f"cannot connect to {self._target.address}: {reason}")

    async def _ready_link(self) -> Link:
        def link() -> Link:
            connection = Connection(self._options.limits, (*self._target.head, *HEAD))
            return Link(connection, self._options.keepalive, self)

        transport, made = await asyncio.get_running_loop().create_connection(
            link,
            self._target.host,
            self._target.port,
            ssl=self._tls,
            server_hostname=None if self._tls is None else self._target.certified_name,
        )
        try:
            _check_protocol(transport)
            await made.wait_ready()
        except BaseException:
            made.abort("it is not ready")
            await made.closed
            raise
        return made


def _check_protocol(transport: asyncio.Transport) -> None:
    """A TLS server must have chosen h2 (RFC 9113, section 3.2)."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is not None and (chosen := tls.selected_alpn_protocol()) != "h2":
        raise ConnectionError(f"the peer chose {chosen!r} by ALPN, not 'h2'")
