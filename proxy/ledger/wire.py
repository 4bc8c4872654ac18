"""What workers and their parent say to each other over the ledger's socket.

A message is its length (4 bytes, big-endian) and a JSON array. Used by `worker_ledger` and
`parent_ledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import orjson

from triton_openai.proxy.ledger.port import Grant, Meter, MeterKind, Refusal

RESERVE, AMEND, SETTLE, CANCEL = 0, 1, 2, 3
GRANTED, REFUSED, UNAVAILABLE = 0, 1, 2
LENGTH_BYTES = 4
MOST_BYTES = 1_000_000

Message = list[Any]


class Framed(asyncio.Protocol):
    """Calls `take` with each message; `end` when the connection has ended.

    is_closing: this end wants it closed. One that is not made yet is closed as soon as it is.
    """

    def __init__(self) -> None:
        self.is_closing = False
        self._unread = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass
        if self.is_closing:
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.end()

    def data_received(self, data: bytes) -> None:
        unread = self._unread
        unread += data
        begin = 0
        while len(unread) - begin >= LENGTH_BYTES:
            body = begin + LENGTH_BYTES
            end = body + int.from_bytes(unread[begin:body], "big")
            if end - body > MOST_BYTES:
                raise ValueError(f"a message of {end - body} bytes")
            if len(unread) < end:
                break
            self.take(orjson.loads(unread[body:end]))
            begin = end
        del unread[:begin]

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def send(self, message: Sequence[object]) -> None:
        """Does nothing where the connection has ended."""
        if self._transport is not None:
            body = orjson.dumps(message)
            self._transport.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)

    def close(self) -> None:
        self.is_closing = True
        if self._transport is not None:
            self._transport.close()

    def take(self, message: Message) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


@asynccontextmanager
async def served(path: Path, accepted: Callable[[], Framed]) -> AsyncIterator[None]:
    """Accepts connections at the path, and closes them at its end.

    accepted: makes this end of a connection, before the connection itself is made. asyncio's own
    loop loses a connection that it accepts as the server closes (Python 3.11); uvloop does not.
    """
    connections: WeakSet[Framed] = WeakSet()

    def accept() -> Framed:
        connection = accepted()
        connections.add(connection)
        return connection

    server = await asyncio.get_running_loop().create_unix_server(accept, str(path))
    try:
        yield
    finally:
        server.close()
        for connection in list(connections):
            connection.close()
        await server.wait_closed()


def packed(meter: Meter) -> list[object]:
    return [
        *(meter.name, meter.tenant, meter.key, meter.kind.value),
        *(meter.limit, meter.span_us, meter.opening),
    ]


def meter_of(fields: Message) -> Meter:
    name, tenant, key, kind, limit, span_us, opening = fields
    return Meter(
        name=name,
        tenant=tenant,
        key=key,
        kind=MeterKind(kind),
        limit=limit,
        span_us=span_us,
        opening=opening,
    )


def answer_of(number: int, result: Grant | Refusal) -> Message:
    standings = [result.look(at) for at in range(len(result.meters))]
    if isinstance(result, Grant):
        return [number, GRANTED, standings]
    return [number, REFUSED, standings, result.at, result.wait_us]


def result_of(answer: Message, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
    number, kind, standings, *refused = answer
    look = standings.__getitem__
    if kind == GRANTED:
        return Grant(meters, amounts, look, id=number)
    at, wait_us = refused
    return Refusal(meters, at, wait_us, look)
