"""Reservations: prompts that only fit when they are counted, releases, and an outage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    ErrorCode,
    ModelUnavailable,
    RateLimited,
)
from proxy.domain.identity import Caller, Limits
from proxy.domain.output import TokenDelta
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest, Sampling, TextPrompt
from proxy.domain.tokenizer import AdmittedPrompt
from proxy.state.memory_meters import InProcessLedger
from tests.doubles.engine import CARD, FACTS
from tests.fixtures.ledgers import Clock
from tests.fixtures.limits import caller

pytestmark = pytest.mark.anyio

LONG = replace(CARD, facts=replace(FACTS, context_length=100_000))


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


def reservation(limiter: RequestLimiter, who: Caller, text: str, **fields: object):
    request = GenerationRequest(
        **{"id": "r", "model": "demo", "prompt": TextPrompt(text=text), "max_tokens": 1, **fields}
    )
    engine_request = EngineRequest(id="r", model=LONG, text=text, timeout_s=1, sampling=Sampling())
    return limiter.reservation(
        who, request, LONG, [engine_request], RequestRecord(), is_stream=False
    )


async def entered(context) -> None:
    async with context:
        pass


def test_a_prompt_that_fits_only_in_tokens_is_counted_and_admitted():
    tokenizer = FourBytes()
    limiter = RequestLimiter(InProcessLedger(), tokenizer)
    who = caller(key=Limits(input_tokens_per_minute=250))
    asyncio.run(entered(reservation(limiter, who, "x" * 1000)))
    assert tokenizer.calls == 1


def test_99_percent_of_a_limit_can_be_used_although_bytes_are_four_times_as_many():
    """The engine counts each of them; near the limit the tokenizer does before."""
    tokenizer = FourBytes()
    limiter = RequestLimiter(InProcessLedger(Clock()), tokenizer)
    who = caller(key=Limits(input_tokens_per_minute=1_000))

    async def main() -> int:
        admitted = 0
        with suppress(RateLimited):
            while True:
                running = await reservation(limiter, who, "x" * 40).__aenter__()
                admitted += 1
                running.see_first("r", TokenDelta((), prompt_tokens=10), counts_prompt=True)
        return admitted

    assert asyncio.run(main()) == 100
    assert 0 < tokenizer.calls < 10


def test_without_a_tokenizer_that_answers_the_bytes_decide():
    limiter = RequestLimiter(InProcessLedger(), FourBytes(ModelUnavailable("away")))
    who = caller(key=Limits(input_tokens_per_minute=250))
    with pytest.raises(RateLimited) as refused:
        asyncio.run(entered(reservation(limiter, who, "x" * 1000)))
    assert refused.value.code is ErrorCode.REQUEST_EXCEEDS_LIMIT


def test_a_prompt_far_beyond_what_is_left_is_refused_without_being_counted():
    tokenizer = FourBytes()
    limiter = RequestLimiter(InProcessLedger(), tokenizer)
    who = caller(key=Limits(input_tokens_per_minute=1_000))

    async def main() -> None:
        await reservation(limiter, who, "x" * 990).__aenter__()
        with pytest.raises(RateLimited):
            await entered(reservation(limiter, who, "x" * 900))

    asyncio.run(main())
    assert tokenizer.calls == 0


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (None, 8),  # two requests were made, and the one that looks is the third
        (asyncio.CancelledError(), 8),
        (ModelUnavailable("away"), 9),
    ],
)
async def test_requests_that_were_refused_later_are_given_back(
    error: BaseException | None, left: int
):
    ledger = InProcessLedger()
    limiter = RequestLimiter(ledger, FourBytes())
    who = caller(key=Limits(requests_per_minute=10, output_tokens_per_minute=100))

    with suppress(BaseException):
        async with reservation(limiter, who, "x", max_tokens=90):
            if error is not None:
                raise error
    async with reservation(limiter, who, "x", max_tokens=90):
        meters = (await limiter._means.callers.meters(who, "demo")).meters
        looked = await ledger.reserve(meters, [0] * len(meters))
        assert looked.look(0)[0] == left
        assert looked.look(1)[0] == 10
