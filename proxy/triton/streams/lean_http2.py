"""Streams over our own HTTP/2 framing, which costs a fraction of grpc.aio's CPU per response.

One connection carries all streams, so that one read brings messages of many.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.triton.http2.calls import Http2Limits
from proxy.triton.http2.connection import Connection
from proxy.triton.streams.keepalive import KeepaliveTimes
from proxy.triton.streams.lean_stream import LeanStream
from proxy.triton.streams.link import Link, Owner
from proxy.triton.streams.pool import Pool
from proxy.triton.streams.port import MAX_RESPONSE_BYTES, LeaseTerms, Metadata
from proxy.triton.target import Target

HEAD = (
    (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "triton-openai"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanOptions:
    """backoff_s: the first pause after a failure to connect, and the longest one.

    max_age_s: of a connection, after which another replaces it; None for no limit.
    """

    limits: Http2Limits = field(default_factory=lambda: Http2Limits(max_message=MAX_RESPONSE_BYTES))
    keepalive: KeepaliveTimes = field(default_factory=KeepaliveTimes)
    connect_timeout_s: float = 5.0
    backoff_s: tuple[float, float] = (0.1, 1.0)
    max_age_s: float | None = None


class LeanHttp2Streams:
    """See port.Streams."""

    def __init__(self, target: Target, options: LeanOptions | None = None) -> None:
        self._target = target
        self._options = options or LeanOptions()

    async def __aenter__(self) -> Self:
        self._tls = self._target.tls()
        self._pool = Pool(self._connect, self._options.backoff_s, self._options.max_age_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    def open(
        self,
        request: service_pb2.ModelInferRequest,
        *,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
    ) -> LeanStream:
        stream = LeanStream(self._pool, request.SerializeToString(), timeout_s, terms, metadata)
        self._pool.place(stream)
        return stream

    async def _connect(self, owner: Owner) -> Link:
        """Raises ConnectionError."""
        timeout_s = self._options.connect_timeout_s
        try:
            return await asyncio.wait_for(self._ready_link(owner), timeout_s)
        except asyncio.TimeoutError:
            reason = f"no HTTP/2 connection within {timeout_s:g} seconds"
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot have an address
            reason = str(error)
        raise ConnectionError(f"cannot connect to {self._target.address}: {reason}")

    async def _ready_link(self, owner: Owner) -> Link:
        def link() -> Link:
            connection = Connection(self._options.limits, (*self._target.head, *HEAD))
            return Link(connection, self._options.keepalive, owner)

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
