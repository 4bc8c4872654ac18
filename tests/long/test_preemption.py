"""A request of a higher class on a full ONNX engine of a real tritonserver, and the streams that
make room for it.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.pool_load import CONTINUED, until
from tests.fixtures.random_model import medium
from tests.fixtures.running import ARTIFACTS, alone
from tests.fixtures.stack import HANG_S, Stack
from tests.fixtures.tenant_load import LoadedTenant, stack

ROWS, LOW_STREAMS, LOW_TOKENS = 2, 4, 120
LEAST_TOP_STREAMS, TRIES = 6, 3  # usually 14 and more
PREEMPTED = re.compile(
    r'^proxy_fair_queue_preemptions_total\{queue="default/demo"\} (\S+)$', re.MULTILINE
)
FOUND_AGAIN = 0.5  # of the tokens of the streams that were stopped: whole blocks of 16 are kept


@dataclass
class Stream:
    """cuts: how many tokens it had each time another engine stream continued it."""

    text: str = ""
    tokens: int = 0
    cuts: list[int] = field(default_factory=list)
    id: str = ""
    prompt_tokens: int = 0

    def read(self, line: str) -> None:
        if line.startswith(": continued"):
            assert line.endswith("(preempted)"), line
            self.cuts.append(self.tokens)
        elif line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            self.text += "".join(choice["text"] for choice in event["choices"])
            self.id, self.tokens = event["id"], event["usage"]["completion_tokens"]
            self.prompt_tokens = event["usage"]["prompt_tokens"]


class Run:
    """The low class fills the engine, and asks for a priority that its key does not have. Then
    requests of the top class come one after the other, until the low ones have ended.
    """

    def __init__(self, running: Stack, low: LoadedTenant, top: LoadedTenant) -> None:
        self.low = [Stream() for _ in range(LOW_STREAMS)]
        self.top: list[Stream] = []
        self.capped: set[str | None] = set()
        self._running = running
        self._keys = {"low": low.key, "top": top.key}
        self.client = httpx.AsyncClient(base_url=running.url, timeout=HANG_S)

    async def stream(self, into: Stream, tenant: str, salt: str, **fields: Any) -> Stream:
        """Without its own salt it would find what others of the same prompt have computed."""
        usage = {"include_usage": True, "continuous_usage_stats": True}
        body = {"model": "demo", "ignore_eos": True, "cache_salt": salt, "temperature": 0.9}
        body |= {"stream": True, "stream_options": usage, **fields}
        headers = {"authorization": f"Bearer {self._keys[tenant]}"}
        async with self.client.stream(
            "POST", "/v1/completions", json=body, headers=headers
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            if tenant == "low":
                self.capped.add(answer.headers.get("x-priority-capped"))
            async for line in answer.aiter_lines():
                into.read(line)
        return into

    def low_stream(self, number: int, into: Stream, salt: str) -> Any:
        fields = {"prompt": f"{number}: once upon a time", "seed": number, "priority": -9}
        return self.stream(into, "low", f"{salt} {number}", max_tokens=LOW_TOKENS, **fields)

    async def undisturbed(self) -> list[Stream]:
        streams = [self.low_stream(number, Stream(), "calm") for number in range(LOW_STREAMS)]
        return await asyncio.gather(*streams)

    async def preempted(self) -> None:
        low = [
            asyncio.create_task(self.low_stream(number, one, "crowded"))
            for number, one in enumerate(self.low)
        ]

        async def is_full() -> bool:
            return sum(one.tokens > 16 for one in self.low) >= ROWS

        await until(is_full, "every row has a stream")
        while not all(task.done() for task in low):
            number = len(self.top)
            fields = {"prompt": "Now!", "seed": number, "priority": -5, "max_tokens": 8}
            self.top.append(await self.stream(Stream(), "top", f"top {number}", **fields))
        await asyncio.gather(*low)

    async def page(self) -> str:
        headers = {"authorization": f"Bearer {self._keys['top']}"}
        return (await self.client.get("/metrics", headers=headers)).text

    def waits_s(self) -> list[float]:
        """Of the top class, in the proxy's queue and the engine's, as the log says."""
        lines = map(json.loads, filter(_is_json, self._running.log.read_text().splitlines()))
        waits = {line["id"]: line["queue_ms"] / 1000 for line in lines if line.get("queue_ms")}
        return [waits[one.id] for one in self.top]


def _is_json(line: str) -> bool:
    return line.startswith("{")


@pytest.fixture(scope="module")
def weights() -> Path:
    """Kept between runs."""
    with alone():
        return medium(ARTIFACTS / "weights" / "medium")


def test_the_top_class_begins_at_once_and_those_that_make_room_say_what_they_would_have(weights):
    """With a spare stream: the proxy stops one that has a row."""
    low = LoadedTenant(name="low", streams=0, max_priority=1)
    top = LoadedTenant(name="top", streams=0, max_priority=5)

    async def is_measured(running: Stack) -> bool:
        """Whether there were enough streams of the top class before the others had ended."""
        run = Run(running, low, top)
        async with run.client:
            calm = await run.undisturbed()
            before = await asyncio.to_thread(running.settled_engine, "demo")
            await run.preempted()
            engine = await asyncio.to_thread(running.settled_engine, "demo")
            page = await run.page()
        if len(run.top) < LEAST_TOP_STREAMS:
            return False
        check(run, calm, {name: engine[name] - before[name] for name in engine}, page)
        return True

    for _ in range(TRIES):
        with stack(ROWS, low, top, weights=weights, SPARE_STREAMS="1") as running:
            if asyncio.run(is_measured(running)):
                return
    pytest.fail(f"fewer than {LEAST_TOP_STREAMS} streams of the top class, {TRIES} times")


def check(run: Run, calm: list[Stream], engine: dict[str, float], page: str) -> None:
    told = [(one.text, one.tokens, one.prompt_tokens) for one in run.low]
    assert told == [(one.text, one.tokens, one.prompt_tokens) for one in calm]
    assert run.capped == {"-1"}

    cuts = [len(one.cuts) for one in run.low]
    continued = sum(float(line[2]) for line in CONTINUED.finditer(page) if line[1] == "preempted")
    stopped = float(PREEMPTED.search(page)[1])
    assert max(sum(cuts), 1) <= stopped
    assert 1 <= continued <= stopped, "stopped again before its next token it is continued once"

    first = run.waits_s()[:LEAST_TOP_STREAMS]  # each found a stream that could make room
    step_s = engine["decode_seconds"] / engine["decode_steps"]
    assert statistics.median(first) < 2 * step_s, (first, step_s)

    # one that is stopped again before its next token loses nothing more
    lost = sum(tokens + one.prompt_tokens for one in run.low for tokens in set(one.cuts))
    assert engine["cached_tokens"] >= FOUND_AGAIN * lost, (engine["cached_tokens"], lost)
