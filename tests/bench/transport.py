"""CPU a message of the transports of token streams, from the socket to a TokenDelta.

usage: make bench-transport

Compared are the proxy's own ("lean") and grpc.aio. A process of its own stands in for Triton: each
stream gets MESSAGES responses of four tokens, as fast as it can, or one every 6 ms. The transports
take turns, so that noise hits both alike; what counts is the ratio of medians.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection

import grpc
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc

from proxy.triton import codec, tensors
from proxy.triton.streams.lean_http2 import LeanHttp2Streams
from proxy.triton.target import Target, channel

ROUNDS, MESSAGES, PACE_S = 5, 200, 0.006
TRANSPORTS = ("lean", "grpc.aio")
WAYS = [(streams, paced) for streams in (64, 256) for paced in (False, True)]
TEXT = b"".join(struct.pack("<I", len(piece)) + piece for piece in (b" one", b" two", b" 3", b"."))


def response(*, is_last: bool) -> bytes:
    found = service_pb2.ModelStreamInferResponse()
    inner = found.infer_response
    inner.parameters["triton_final_response"].bool_param = is_last
    inner.outputs.add(name=tensors.TEXT_OUTPUT, datatype="BYTES", shape=(1, 4))
    inner.raw_output_contents.append(TEXT)
    return bytes(found.SerializeToString())


async def serve(ready: Connection) -> None:
    """Until the process ends. A request whose id is "paced" gets its responses at a pace."""
    more, last = response(is_last=False), response(is_last=True)

    async def stream(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        asked = service_pb2.ModelInferRequest.FromString(await anext(requests))
        for number in range(MESSAGES):
            if asked.id == "paced":
                await asyncio.sleep(PACE_S)
            yield last if number == MESSAGES - 1 else more

    handler = grpc.stream_stream_rpc_method_handler(stream)
    methods = grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ModelStreamInfer": handler}
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((methods,))
    ready.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


def run_peer(ready: Connection) -> None:
    asyncio.run(serve(ready))


async def cost(target: Target, transport: str, streams: int, *, paced: bool) -> float:
    """CPU microseconds a message."""
    request = service_pb2.ModelInferRequest(model_name="demo", id="paced" if paced else "flood")
    async with AsyncExitStack() as stack:
        if transport == "grpc.aio":
            opened = await stack.enter_async_context(channel(target))
            stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)

            def responses() -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
                return stub.ModelStreamInfer(iter([request]))

        else:
            streams_of = await stack.enter_async_context(LeanHttp2Streams(target))

            def responses() -> AsyncIterator[service_pb2.ModelStreamInferResponse]:
                return streams_of.open(request, timeout_s=120)

        async def read() -> int:
            messages = 0
            async for one in responses():
                messages += codec.decode(one.infer_response).delta is not None
            return messages

        began = time.process_time()
        messages = sum(await asyncio.gather(*(read() for _ in range(streams))))
        spent = time.process_time() - began
    assert messages == streams * MESSAGES
    return spent / messages * 1e6


@contextmanager
def peer() -> Iterator[Target]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=run_peer, args=(theirs,), daemon=True
    )
    process.start()
    try:
        yield Target(f"127.0.0.1:{ours.recv()}")
    finally:
        process.terminate()
        process.join()


def compared(target: Target, streams: int, *, paced: bool) -> str:
    """One line of the report."""
    found: dict[str, list[float]] = {transport: [] for transport in TRANSPORTS}
    for _ in range(ROUNDS):
        for transport, costs in found.items():
            costs.append(uvloop.run(cost(target, transport, streams, paced=paced)))
    lean, other = (statistics.median(costs) for costs in found.values())
    way = f"{streams:4} streams, {'paced' if paced else 'flood'}"
    return f"{way}: lean {lean:.1f} µs a message, grpc.aio {other:.1f} ({other / lean:.1f} times)\n"


def main() -> None:
    with peer() as target:
        for streams, paced in WAYS:
            sys.stdout.write(compared(target, streams, paced=paced))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
