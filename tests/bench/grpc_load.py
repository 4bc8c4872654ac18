"""Streams over gRPC, straight to the ensemble: our own generator, where perf_analyzer is missing.

usage: python -m tests.bench.grpc_load < plan.json        prints Figures as JSON

The plan: target, model, prompt, max_tokens, streams. Over the proxy's own HTTP/2 reader, which
takes less of the machine than grpc's Python client.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from typing import Any

import uvloop

from proxy.domain.engine import EngineRequest
from proxy.domain.model import CAPABILITIES, ModelCard
from proxy.domain.request import Sampling
from proxy.triton import codec
from proxy.triton.streams.lean_http2 import LeanHttp2Streams
from proxy.triton.target import Target
from tests.bench.figures import Figures, Stream, figures_of
from tests.doubles.engine import FACTS

TIMEOUT_S = 600.0


async def run(plan: dict[str, Any]) -> Figures:
    card = ModelCard(
        name=plan["model"],
        triton_model=plan["model"],
        facts=FACTS,
        capabilities=CAPABILITIES - {"prompt_blocks"},  # scripted engines have no KV cache
    )
    async with LeanHttp2Streams(Target(plan["target"])) as port:
        cpu, began = time.process_time(), time.perf_counter()
        streams = await asyncio.gather(
            *(_stream(port, card, plan, number) for number in range(plan["streams"]))
        )
        wall_s, client_s = time.perf_counter() - began, time.process_time() - cpu
    errors = sum(stream.tokens != plan["max_tokens"] for stream in streams)
    return figures_of(streams, wall_s=wall_s, client_s=client_s, errors=errors)


async def _stream(
    port: LeanHttp2Streams, card: ModelCard, plan: dict[str, Any], number: int
) -> Stream:
    message = codec.encode(
        EngineRequest(
            id=f"direct-{number}", model=card, text=plan["prompt"], timeout_s=TIMEOUT_S,
            max_tokens=plan["max_tokens"], sampling=Sampling(ignore_eos=True),
        )
    )  # fmt: skip
    began, arrived, tokens = time.perf_counter(), [], 0
    async for response in port.open(message, timeout_s=TIMEOUT_S):
        delta = codec.decode(response.infer_response).delta
        if delta is not None:
            arrived.append(time.perf_counter())
            tokens += len(delta.token_bytes)
    return Stream(began=began, arrived=arrived, tokens=tokens)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(run(json.load(sys.stdin))))))
