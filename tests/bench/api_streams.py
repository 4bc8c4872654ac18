"""A server of its own and streams through its whole API."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.fixtures.stack import ROOT, Stack, free_ports

TOKENS = 100
USAGE = re.compile(rb'"completion_tokens":(\d+)')


class Api:
    """`triton-openai serve` with the registry's own models, on free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        environment = {**free_ports(), "ARTIFACTS_DIR": str(ROOT / "artifacts")}
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

        async def one(seed: int) -> int:
            async with gate:
                return await self._stream(seed)

        start = time.perf_counter()
        counts = await asyncio.gather(*map(one, range(streams)))
        return sum(counts) / (time.perf_counter() - start)

    async def _stream(self, seed: int) -> int:
        """Tokens that came, by the last chunk's usage. Reads bytes: a client costs CPU too."""
        body = {
            "model": "demo",
            "prompt": f"Number {seed}. Once upon a time",
            "max_tokens": TOKENS,
            "temperature": 1.5,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        content = json.dumps(body).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", self._stack.port)
        writer.write(head.encode() + content)
        answer = await reader.read()
        writer.close()
        found = USAGE.findall(answer)
        if not found:
            raise RuntimeError(f"no usage in {answer[-300:]!r}")
        return int(found[-1])
