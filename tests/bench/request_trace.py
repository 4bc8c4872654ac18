"""Counts what one streamed chat passes in the proxy: to its first byte, and for one delta.

    python -m tests.bench.request_trace

The composed application with an API key and two endpoints, over our own reader of gRPC streams; the
HTTP server is left out. A double of Triton sends a token when the one before was sent to the
client, so that tokens are never joined. Background tasks run in between: each count is the smallest
of several requests or deltas.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from proxy.app import compose
from proxy.domain.endpoints import EndpointState
from proxy.settings import Settings
from proxy.telemetry.logs import configure
from proxy.triton.client import TritonClient
from proxy.triton.target import Target
from tests.doubles.sandbox import InProcess
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.stack import ROOT

TOKENS, REQUESTS = 12, 20
KEY = "k" * 40
BODY = {
    "model": "demo",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0.5,
    "stream": True,
}
PROXY = f"{ROOT / 'proxy'}/"
Place = tuple[str, int]  # the file of a function, and the line where it begins


class PacedTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Sends each request TOKENS responses, the next one when `taken` is released."""

    def __init__(self) -> None:
        self.taken = asyncio.Semaphore(0)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], _: object) -> AsyncIterator[Any]:
        request = await anext(requests)
        mark = struct.pack("<I", zlib.crc32(request.id.encode()))
        for number in range(TOKENS):
            token = struct.pack("<i", number)
            tensors = {"text_output": struct.pack("<I", 2) + b"ab", "output_ids": token}
            tensors["receipt"] = token + mark
            if number == 0:
                tensors |= {"num_input_tokens": struct.pack("<i", 7), "num_cached_tokens": bytes(4)}
            message = service_pb2.ModelStreamInferResponse()
            if number == TOKENS - 1:
                tensors["finish_reason"] = struct.pack("<I", 4) + b"stop"
                message.infer_response.parameters["triton_final_response"].bool_param = True
            for name, raw in tensors.items():
                message.infer_response.outputs.add(name=name)
                message.infer_response.raw_output_contents.append(raw)
            yield message
            await self.taken.acquire()


class Trace:
    """Calls of the proxy's functions, and how many there were when a message was sent."""

    def __init__(self) -> None:
        self.calls: list[Place] = []
        self.sent: list[int] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PROXY):
            file = frame.f_code.co_filename.removeprefix(PROXY)
            self.calls.append((file, frame.f_code.co_firstlineno))

    def to_first_byte(self) -> dict[str, int]:
        calls = self.calls[: self.sent[1]]
        packages = [file.partition("/")[0] for file, _ in calls]
        return {
            "files": len({file for file, _ in calls}),
            "functions": len(set(calls)),
            "calls": len(calls),
            "changes of package": sum(one != other for one, other in pairwise(packages)),
        }

    def of_deltas(self) -> list[dict[str, int]]:
        """Without the first token and the last."""
        parts = [self.calls[begin:end] for begin, end in pairwise(self.sent[2:TOKENS])]
        return [{"files": len({file for file, _ in calls}), "calls": len(calls)} for calls in parts]

    def by_package(self) -> Counter[str]:
        """Files to the first byte."""
        return Counter(
            file.partition("/")[0] for file in {x for x, _ in self.calls[: self.sent[1]]}
        )


@asynccontextmanager
async def application() -> AsyncIterator[tuple[Any, PacedTriton]]:
    """Ready, with two endpoints, which are the same double."""
    triton, server = PacedTriton(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    endpoints = {"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}
    with TemporaryDirectory() as folder:
        models_file = Path(folder) / "models.yaml"
        models_file.write_text("models: {another: {weights: w}}")
        settings = Settings(models_file=models_file, api_key=KEY)
        async with TritonClient(Target(f"127.0.0.1:{port}")) as client:
            for each in endpoints.values():
                each.engine = client
            pools = PoolStand(endpoints)
            app = compose(settings, pools.engine, pools.pools, pools.tokenizer, InProcess())
            async with started(app):
                while set(pools.states().values()) != {EndpointState.READY}:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                yield app, triton
    await server.stop(None)


async def traced(app: Any, triton: PacedTriton) -> Trace:
    """Of one streamed chat."""
    trace = Trace()

    async def counted(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async def count_and_send(message: dict[str, Any]) -> None:
            trace.sent.append(len(trace.calls))
            await send(message)
            if b'"ab"' in message.get("body", b""):
                triton.taken.release()

        await app(scope, receive, count_and_send)

    sys.setprofile(trace)
    try:
        headers = {"authorization": f"Bearer {KEY}"}
        call = await Call(counted, "/v1/chat/completions", BODY, headers).done()
    finally:
        sys.setprofile(None)
    assert call.status == 200, call.body
    assert call.body.count(b'"ab"') == TOKENS, call.body
    return trace


async def traces() -> list[Trace]:
    """The first request, which fills caches, is left out."""
    async with application() as (app, triton):
        found = []
        for _ in range(REQUESTS + 1):
            found.append(await traced(app, triton))
            await asyncio.sleep(0.02)  # the trailers of its engine stream belong to it, too
    return found[1:]


def table(found: list[Trace]) -> dict[str, int]:
    """The counts that test_request_trace.py limits."""
    parts = {
        "first byte": [trace.to_first_byte() for trace in found],
        "delta": [each for trace in found for each in trace.of_deltas()],
    }
    return {
        f"{part}, {name}": min(each[name] for each in counts)
        for part, counts in parts.items()
        for name in counts[0]
    }


def main() -> None:
    configure("critical", "json")
    found = asyncio.run(traces())
    for name, count in table(found).items():
        sys.stdout.write(f"{name:32} {count:5}\n")
    for name, count in found[-1].by_package().most_common():
        sys.stdout.write(f"  files of {name:21} {count:5}\n")


if __name__ == "__main__":
    main()
