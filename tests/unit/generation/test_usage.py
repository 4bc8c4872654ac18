"""The usage of requests is what their engines counted, however the requests ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import EngineFailed, ProxyError
from proxy.domain.identity import Limits, current_caller
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import Delivery, GenerationRequest, TextPrompt
from proxy.generation.service import Service
from proxy.state.memory_meters import InProcessLedger
from proxy.state.meters import Grant
from tests.doubles.engine import ScriptedEngine
from tests.doubles.tokenizer import ByteTokenizer
from tests.doubles.usage import KeptUsage
from tests.fixtures.limits import caller
from tests.fixtures.lost_triton import Stand

REQUESTS = 1_000
BIG = 10**12
LIMITS = Limits(
    requests_per_day=BIG,
    tokens_per_day=BIG,
    input_tokens_per_day=BIG,
    output_tokens_per_day=BIG,
    concurrent_requests=BIG,
    concurrent_streams=BIG,
    monthly_tokens=BIG,
)


@dataclass
class MixedEngine(ScriptedEngine):
    """Each request has tokens, a prompt and an end of its own. Counts by the request's id."""

    rng: random.Random = field(default_factory=lambda: random.Random(20))
    counted: Counter[str] = field(default_factory=Counter)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        rng, counts_prompt = self.rng, not request.id.endswith(("-1", "-2"))
        tokens, fails_at = rng.randint(1, 12), rng.choice([None] * 4 + [0, 3])
        for number in range(tokens):
            if number == fails_at:
                raise EngineFailed("broken")
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.002)
            is_first, is_last = number == 0, number == tokens - 1
            delta = TokenDelta((b"a",), finish=FinishReason.LENGTH if is_last else None)
            if is_first:
                delta.prompt_tokens = rng.randint(1, 60)
                delta.cached_tokens = rng.randint(0, delta.prompt_tokens)
                delta.queue_s = 0.25
                if counts_prompt:
                    self.counted["prompt"] += delta.prompt_tokens
                    self.counted["cached"] += delta.cached_tokens
            self.counted["output"] += 1
            yield delta


async def serving(engine: ScriptedEngine, limiter: RequestLimiter) -> Service:
    stand = Stand(engine, limiter=limiter)
    await stand.look()
    stand.service.card = stand.registry.model("demo").cards[0]
    return stand.service


async def consume(service: Service, number: int, rng: random.Random) -> None:
    """To the end, or until the client disconnects: between two events, or in the middle."""
    request = GenerationRequest(
        id=f"r{number}x",
        model="demo",
        prompt=TextPrompt(text="x" * rng.randint(1, 80)),
        choices=rng.choice([1, 1, 1, 3]),
        max_tokens=12,
    )
    leaves_after = rng.choice([None, None, None, 0, 1, 5])
    delivery = rng.choice(list(Delivery))
    with suppress(ProxyError):
        events = service.generate(request, service.card, delivery).events
        async with aclosing(events):
            at = 0
            async for _ in events:
                at += 1
                if at == leaves_after:
                    return


async def mixed(service: Service, rng: random.Random) -> None:
    async def one(number: int) -> None:
        async with slots:
            task = asyncio.ensure_future(consume(service, number, rng))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.004)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    slots = asyncio.Semaphore(25)
    await asyncio.gather(*map(one, range(REQUESTS)))


def test_1000_mixed_requests_use_what_the_engines_counted():
    engine, sink, ledger = MixedEngine(), KeptUsage(), InProcessLedger()
    limiter = RequestLimiter(ledger, ByteTokenizer(), usage=sink)

    async def main() -> None:
        current_caller.set(caller(key=LIMITS))
        await mixed(await serving(engine, limiter), random.Random(7))
        meters = (await limiter.callers.meters(caller(key=LIMITS), "demo")).meters
        grant = await ledger.reserve(meters, [0] * len(meters))
        assert isinstance(grant, Grant)
        for at, meter in enumerate(meters):
            used[meter.name.removeprefix("key.")] = BIG - grant.look(at)[0]

    used: dict[str, int] = {}
    asyncio.run(main())
    rows, counted = sink.rows, engine.counted
    assert len(rows) > 900  # those that were cancelled before they began have none
    assert sum(row.errors for row in rows) > 50
    assert sum(row.output_tokens for row in rows) == counted["output"]
    assert sum(row.prompt_tokens for row in rows) == counted["prompt"]
    assert sum(row.cached_tokens for row in rows) == counted["cached"]
    assert {row.queue_s for row in rows} == {0.0, 0.25}
    both = counted["output"] + counted["prompt"]
    assert used["tokens_per_day"] == used["monthly_tokens"] == both
    assert used["input_tokens_per_day"] == counted["prompt"]
    assert used["output_tokens_per_day"] == counted["output"]
    assert used["concurrent_requests"] == used["concurrent_streams"] == 0
    failed_first = sum(row.errors and not row.output_tokens for row in rows)
    assert used["requests_per_day"] == len(rows) - failed_first
