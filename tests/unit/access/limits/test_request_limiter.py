"""Priorities under the ceiling, prompts that fit only when counted, and checks that cost much."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.charged_sandbox import ChargedSandbox
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, ModelUnavailable, RateLimited
from proxy.domain.identity import Caller, Limits, current_caller
from proxy.domain.output import TokenDelta
from proxy.domain.record import RequestRecord, current_record
from proxy.domain.request import GenerationRequest, Sampling, TextPrompt
from proxy.domain.sandbox import TooCostly
from proxy.domain.tokenizer import AdmittedPrompt
from proxy.state.memory_meters import InProcessLedger
from tests.doubles.engine import CARD, FACTS
from tests.doubles.sandbox import InProcess
from tests.fixtures.ledgers import Clock
from tests.fixtures.limits import caller, unlimited

INT32 = st.integers(-(2**31), 2**31 - 1)
LONG = replace(CARD, facts=replace(FACTS, context_length=100_000))
REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"), max_tokens=1)


class FourBytes:
    """A token for four bytes; `error` in place of an answer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self._error = error

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return AdmittedPrompt(ids=tuple(range(len(request.text or "") // 4)), max_tokens=9)


@given(st.none() | INT32, st.none() | INT32, INT32)
def test_the_priority_is_the_lower_of_what_is_asked_and_what_is_allowed(asked, own, most):
    limiter = RequestLimiter(InProcessLedger(), FourBytes(), max_priority=most)
    report, who = RequestRecord(), replace(caller(), max_priority=own)
    request = replace(REQUEST, priority=asked)
    got = limiter.capped(request, CARD, who, report)
    ceiling = most if own is None else own
    assert (got.priority or 0) == min(asked or 0, ceiling)
    is_lowered = (asked or 0) > ceiling
    assert report.capped_priority == (ceiling if is_lowered and asked is not None else None)
    assert got.has_assigned_priority == (is_lowered and asked is None)
    if not is_lowered:
        assert got is request


class Stand:
    """Requests of a caller with a limit on its input tokens, whose clock stands still."""

    def __init__(self, limit: int, error: Exception | None = None) -> None:
        self.tokenizer = FourBytes(error)
        self.limiter = RequestLimiter(InProcessLedger(Clock()), self.tokenizer)
        self.who = caller(key=Limits(input_tokens_per_minute=limit))

    async def begin(self, size: int):
        sent = EngineRequest(id="r", model=LONG, text="x" * size, timeout_s=1, sampling=Sampling())
        record = RequestRecord()
        made = self.limiter.reservation(self.who, REQUEST, LONG, [sent], record, is_stream=False)
        return await made.__aenter__()


def test_a_prompt_that_fits_only_in_tokens_is_counted_and_admitted():
    stand = Stand(250)
    asyncio.run(stand.begin(1000))
    assert stand.tokenizer.calls == 1


def test_99_percent_of_a_limit_can_be_used_although_bytes_are_four_times_as_many():
    """The engine counts each of them; near the limit the tokenizer does before."""
    stand = Stand(1_000)

    async def main() -> int:
        admitted = 0
        with suppress(RateLimited):
            while True:
                running = await stand.begin(40)
                admitted += 1
                running.see_first("r", TokenDelta((), prompt_tokens=10), counts_prompt=True)
        return admitted

    assert asyncio.run(main()) == 100
    assert 0 < stand.tokenizer.calls < 10


def test_without_a_tokenizer_that_answers_the_bytes_decide():
    with pytest.raises(RateLimited) as refused:
        asyncio.run(Stand(250, ModelUnavailable("away")).begin(1000))
    assert refused.value.code is ErrorCode.REQUEST_EXCEEDS_LIMIT


def test_a_prompt_far_beyond_what_is_left_is_refused_without_being_counted():
    stand = Stand(1_000)

    async def main() -> None:
        await stand.begin(990)
        with pytest.raises(RateLimited):
            await stand.begin(900)

    asyncio.run(main())
    assert stand.tokenizer.calls == 0


pytestmark = pytest.mark.anyio

TWO = caller(key=Limits(requests_per_minute=2))


class CostlyStand:
    """Every call is too costly while `is_costly`. Each call is a request of its own."""

    def __init__(self) -> None:
        self.inner, self.limiter, self.now_s = InProcess(), unlimited(), 0.0
        self.sandbox = ChargedSandbox(self.inner, self.limiter, lambda: self.now_s)
        self.is_costly = True

    async def call(self, who: Caller = TWO) -> int:
        current_caller.set(who)
        current_record.set(RequestRecord(standings=Standings()))
        return await self.sandbox.run("a", self.work)

    def work(self) -> int:
        if self.is_costly:
            raise TooCostly("it takes more than 2 s")
        return 1

    async def left(self) -> int:
        standings = Standings()
        await self.limiter.look(TWO, standings)
        return standings.requests.remaining


async def test_costly_calls_count_as_requests_and_then_none_is_made_until_the_limit_is_free():
    stand = CostlyStand()
    stand.is_costly = False
    assert await stand.call() == 1
    stand.is_costly = True
    left = [await stand.left()]
    for _ in range(3):
        with pytest.raises(TooCostly):
            await stand.call()
        left.append(await stand.left())
    assert left == [2, 1, 0, 0]
    with pytest.raises(RateLimited) as refused:
        await stand.call()
    assert len(stand.inner.functions) == 4
    assert refused.value.limit == "key.requests_per_minute"
    with pytest.raises(TooCostly):
        await stand.call(caller(key_id="other", key=Limits(requests_per_minute=2)))
    stand.now_s += refused.value.retry_after_s
    stand.is_costly = False
    assert await stand.call() == 1


async def test_a_request_that_is_counted_already_is_not_given_back():
    stand, standings = CostlyStand(), Standings()
    current_caller.set(TWO)
    current_record.set(RequestRecord(standings=standings))
    async with stand.limiter.counted(TWO, standings):
        with pytest.raises(TooCostly):
            await stand.sandbox.run("a", stand.work)
        standings.is_refused = True
    assert await stand.left() == 1


async def test_a_client_that_disconnects_is_charged_too():
    class Slow(InProcess):
        async def run(self, *_: object) -> None:
            await asyncio.sleep(0)
            raise TooCostly("it takes more than 2 s")

    stand = CostlyStand()
    stand.sandbox = ChargedSandbox(Slow(), stand.limiter)
    call = asyncio.ensure_future(stand.call())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    for _ in range(5):
        await asyncio.sleep(0)
    assert await stand.left() == 1
