"""A call as the tests make it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grpc import StatusCode
from tritonclient.grpc import service_pb2

from proxy.triton.streams.lean_http2 import LeanHttp2Streams
from proxy.triton.streams.link import LeanStream, StreamFailed


@dataclass(frozen=True)
class Outcome:
    """Ids of the responses, and how the stream ended."""

    ids: list[str]
    code: StatusCode = StatusCode.OK
    details: str = ""


def open_call(
    streams: LeanHttp2Streams, name: str = "r", *, timeout_s: float = 5, size: int = 0
) -> LeanStream:
    """With `size` bytes of input."""
    request = service_pb2.ModelInferRequest(id=name)
    if size:
        request.raw_input_contents.append(bytes(size))
    return streams.open(request, timeout_s=timeout_s)


async def read_out(stream: LeanStream) -> Outcome:
    ids = []
    try:
        async for message in stream:
            ids.append(message.infer_response.id)
    except StreamFailed as error:
        return Outcome(ids, error.code, error.details)
    return Outcome(ids)


async def outcome(
    streams: LeanHttp2Streams, name: str = "r", *, timeout_s: float = 5, size: int = 0
) -> Outcome:
    return await read_out(open_call(streams, name, timeout_s=timeout_s, size=size))


async def recovered(streams: LeanHttp2Streams, expected: Outcome, *, tries: int) -> bool:
    """A call after a fault goes well, though some may be lost to a connection that dies."""
    for _ in range(tries):
        if await outcome(streams) == expected:
            return True
        await asyncio.sleep(0.05)
    return False
