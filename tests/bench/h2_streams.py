"""Token streams over the h2 library, for `make bench-transport`: what our own framing is worth.

As lean as h2 allows: one connection for all streams, its checks of headers off, our windows, our
pauses between two reads, one write a read. It lacks our limits, deadlines, leases, reconnections.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.triton.http2.connection import Http2Limits
from proxy.triton.streams.lean_http2 import HEAD
from proxy.triton.streams.link import pause_reading
from proxy.triton.target import Target

PREFIX = struct.Struct(">BI")
DEFAULT_WINDOW = 65_535
CONFIG = H2Configuration(
    client_side=True,
    header_encoding="utf-8",
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class H2Stream:
    """The responses of one call."""

    def __init__(self) -> None:
        self._rest = b""
        self._unread: deque[bytes] = deque()
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse:
        while not self._unread:
            if self._has_ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return service_pb2.ModelStreamInferResponse.FromString(self._unread.popleft())

    def receive(self, data: bytes) -> None:
        whole = self._rest + data if self._rest else data
        at = 0
        while len(whole) - at >= PREFIX.size:
            end = at + PREFIX.size + PREFIX.unpack_from(whole, at)[1]
            if end > len(whole):
                break
            self._unread.append(whole[at + PREFIX.size : end])
            at = end
        self._rest = whole[at:]
        self._wake()

    def end(self) -> None:
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class H2Link(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._connection = H2Connection(CONFIG)
        self._streams: dict[int, H2Stream] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limits, connection = Http2Limits(), self._connection
        connection.local_settings.update({SettingCodes.ENABLE_PUSH: 0})
        connection.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = limits.stream_window
        connection.initiate_connection()
        connection.increment_flow_control_window(limits.connection_window - DEFAULT_WINDOW)
        self._write()

    def open(self, head: list[tuple[str, str]], message: bytes) -> H2Stream:
        stream, connection = H2Stream(), self._connection
        number = connection.get_next_available_stream_id()
        self._streams[number] = stream
        connection.send_headers(number, head)
        data = PREFIX.pack(0, len(message)) + message
        connection.send_data(number, data, end_stream=True)
        self._write()
        return stream

    def data_received(self, data: bytes) -> None:
        connection, streams = self._connection, self._streams
        for event in connection.receive_data(data):
            if isinstance(event, DataReceived):
                length = event.flow_controlled_length
                connection.acknowledge_received_data(length, event.stream_id)
                streams[event.stream_id].receive(event.data)
            elif isinstance(event, StreamEnded | StreamReset):
                streams.pop(event.stream_id).end()
        self._write()
        pause_reading(self._transport, streams=len(streams))

    def close(self) -> None:
        self._transport.close()

    def _write(self) -> None:
        if data := self._connection.data_to_send():
            self._transport.write(data)


class H2Streams:
    """As port.Streams, as far as the benchmark goes."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def __aenter__(self) -> Self:
        loop, target = asyncio.get_running_loop(), self._target
        _, self._link = await loop.create_connection(H2Link, target.host, target.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._link.close()

    def open(self, request: service_pb2.ModelInferRequest, *, timeout_s: float) -> H2Stream:
        head = [*self._target.head, *HEAD]
        return self._link.open(head, request.SerializeToString())
