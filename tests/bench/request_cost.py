"""What the fair queue, continuation and an idempotency key cost a chat that waits for nothing.

    .venv/bin/python -m tests.bench.request_cost [REQUESTS] [ROUNDS]

The composed application over the scripted engine of the tests, in one thread; runs alternate. CPU:
the difference of the medians to an application without any of them, a request, and a token.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proxy.app import compose
from proxy.settings import Settings
from proxy.telemetry.logs import configure
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer
from tests.fixtures.asgi_calls import Call, started

SHORT, LONG = 4, 404  # tokens
OFF = {"scheduling": "none", "max_continuations": 0}
WAYS: Mapping[str, tuple[Mapping[str, object], bool]] = {
    "none of them": (OFF, False),
    "fair queue": ({**OFF, "scheduling": "fair"}, False),
    "continuation": ({"scheduling": "none"}, False),
    "idempotency key": (OFF, True),
    "all of them": ({}, True),
}
BODY = {
    "model": "demo",
    "messages": [{"role": "user", "content": "What is new?"}],
    "temperature": 0,
    "stream": True,
}


async def cpu_us(app: Any, keys: Iterator[int] | None, requests: int) -> float:
    """CPU of this thread for each request. Eight requests run at a time."""
    began = time.thread_time()
    for _ in range(requests // 8):
        named = [{} if keys is None else {"idempotency-key": f"k{next(keys)}"} for _ in range(8)]
        calls = [Call(app, "/v1/chat/completions", BODY, headers) for headers in named]
        for call in calls:
            assert (await call.done()).status == 200, call.body
    return (time.thread_time() - began) / requests * 1e6


async def measured(requests: int, rounds: int, tokens: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory()))
        models_file = folder / "models.yaml"
        models_file.write_text("models: {another: {weights: w}}")
        apps = {}
        for name, (settings, _) in WAYS.items():
            given = Settings(models_file=models_file, **settings)
            engine = ScriptedEngine(deltas("x" * tokens))
            facts = replace(FACTS, context_length=4096)
            app = compose(given, engine, FixedCatalog(facts=facts), ByteTokenizer(), InProcess())
            apps[name] = await running.enter_async_context(started(app))
        keys = count()
        for number in range(-1, rounds):  # the first warms up
            for name, (_, has_key) in WAYS.items():
                spent = await cpu_us(apps[name], keys if has_key else None, requests)
                if number >= 0:
                    found[name].append(spent)
    return found


def main(requests: int = 400, rounds: int = 7) -> None:
    configure("critical", "json")
    short, long = (asyncio.run(measured(requests, rounds, tokens)) for tokens in (SHORT, LONG))
    base = None
    for name in WAYS:
        request = statistics.median(short[name])
        token = (statistics.median(long[name]) - request) / (LONG - SHORT)
        base = base or (request, token)
        sys.stdout.write(
            f"{name:16} {request:6.0f} us a request ({request - base[0]:+4.0f}), "
            f"{token:5.2f} us a token ({token - base[1]:+5.2f})\n"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
