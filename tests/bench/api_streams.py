"""A server of its own and streams through its whole API."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import TracebackType

import httpx
from typing_extensions import Self

from tests.fixtures.stack import ROOT, Stack, free_port

TOKENS = 100


class Api:
    """`triton-openai serve` with the registry's own models, on free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        ports = {
            name: str(free_port())
            for name in ("PORT", "TRITON_GRPC_PORT", "TRITON_HTTP_PORT", "TRITON_METRICS_PORT")
        }
        environment = {**ports, "ARTIFACTS_DIR": str(ROOT / "artifacts")}
        self._stack = Stack(["serve"], environment, self._folder / "log")
        self._stack.wait_ready(120)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.stop()

    async def rate(self, streams: int, *, at_once: int) -> float:
        """Tokens a second of so many streams, at most `at_once` at a time."""
        gate = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(base_url=self._stack.url, timeout=60) as client:
            start = time.perf_counter()
            counts = await asyncio.gather(
                *(self._stream(client, gate, number) for number in range(streams))
            )
            return sum(counts) / (time.perf_counter() - start)

    async def _stream(self, client: httpx.AsyncClient, gate: asyncio.Semaphore, seed: int) -> int:
        """Tokens that came, by the usage of the last chunk."""
        body = {
            "model": "demo",
            "prompt": f"Number {seed}. Once upon a time",
            "max_tokens": TOKENS,
            "temperature": 1.5,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        tokens = 0
        async with gate, client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    usage = json.loads(line[6:]).get("usage")
                    tokens = usage["completion_tokens"] if usage else tokens
        return tokens
