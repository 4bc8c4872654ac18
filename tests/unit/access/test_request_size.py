"""Bounds on a request's size, the log-probability budget, and the check of guides."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.log_prob_budget import LogProbBudget
from proxy.access.request_size import RequestSizeLimits, permits_needed
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited
from proxy.domain.request import (
    GenerationRequest,
    PromptBatch,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.tokenizer import AdmittedPrompt
from tests.doubles.engine import CARD

LIMITS = RequestSizeLimits(copied_bytes=1000, log_probs=100)
REGEX = Constraint(GuideKind.REGEX, "a" * 300)


def request(prompt="x", **fields) -> GenerationRequest:
    prompt = TextPrompt(text=prompt) if isinstance(prompt, str) else prompt
    return GenerationRequest(id="r", model="demo", prompt=prompt, **fields)


def copies(asked: GenerationRequest, *texts: str | None) -> None:
    LIMITS.check_copies(asked, texts)


@pytest.mark.parametrize(
    ("asked", "texts"),
    [
        (request("é" * 100, choices=6), ["é" * 100]),
        (request("x" * 300, best_of=4), ["x" * 300]),
        (request("x", choices=4, constraint=REGEX), ["x"]),
        (request(TokenPrompt(ids=(1,) * 100), choices=3), [None]),
        (
            request(PromptBatch(prompts=(TextPrompt(text="x" * 400),) * 2), choices=2),
            ["x" * 400] * 2,
        ),
        (request("x", choices=5, sampling=Sampling(bad_words=("w" * 50,) * 5)), ["x"]),
        (request("x", choices=5, sampling=Sampling(allowed_token_ids=(1,) * 60)), ["x"]),
    ],
)
def test_choices_times_what_each_is_sent_is_bounded(asked, texts):
    with pytest.raises(InvalidRequest, match="at most 1000") as refused:
        copies(asked, *texts)
    assert refused.value.param == "choices"
    RequestSizeLimits(copied_bytes=10_000).check_copies(asked, texts)


def logged(top: int, **fields) -> GenerationRequest:
    return request(sampling=Sampling(top_log_probs=top), **fields)


@pytest.mark.parametrize(("top", "choices", "most"), [(0, 1, 100), (4, 1, 20), (4, 5, 4)])
def test_choices_times_tokens_times_log_probs_is_bounded(top, choices, most):
    allowed = logged(top, choices=choices, max_tokens=most)
    assert LIMITS.limit_log_probs(allowed, CARD) is allowed
    with pytest.raises(InvalidRequest, match=rf"'max_tokens' to {most} or less") as refused:
        LIMITS.limit_log_probs(replace(allowed, max_tokens=most + 1), CARD)
    assert refused.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("top", "choices", "counted"), [(None, 3, 3), (0, 3, 3), (1, 1, 2), (4, 2, 4), (20, 2, 12)]
)
def test_choices_with_alternatives_count_for_more(top, choices, counted):
    assert permits_needed(request(sampling=Sampling(top_log_probs=top), choices=choices)) == counted


def test_more_tokens_than_the_context_holds_do_not_count():
    limits = RequestSizeLimits(log_probs=CARD.facts.context_length)
    asked = logged(0, max_tokens=10**6)
    assert limits.limit_log_probs(asked, CARD) is asked


def test_an_echoed_prompts_log_probs_count_too():
    asked = replace(logged(0, max_tokens=40), prompt=TextPrompt(text="x" * 50))
    assert LIMITS.limit_log_probs(asked, CARD) is asked
    with pytest.raises(InvalidRequest):
        LIMITS.limit_log_probs(replace(asked, echoes_prompt=True, max_tokens=50), CARD)


def test_held_log_probs_are_bounded_for_all_and_given_back():
    held = LogProbBudget(10)
    with held.share() as one, held.share() as other:
        one.add(6)
        other.add(4)
        with pytest.raises(RateLimited, match="at most 10") as refused:
            other.add(1)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    with held.share() as one:
        one.add(10)


class SlowTokenizer:
    """Each guide takes a turn of the event loop or two; keeps how many ran at once, by prompt."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = self.most = 0

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        self.asked.append(request.constraint.text)
        assert (request.text, request.max_tokens) == ("a", 1)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return AdmittedPrompt(ids=(1,), max_tokens=1)


def guided(text: str) -> EngineRequest:
    return EngineRequest(
        id="r",
        model=CARD,
        text="long " * 1000,
        timeout_s=9,
        sampling=Sampling(),
        constraint=Constraint(GuideKind.REGEX, text),
    )


def test_a_guide_that_passed_is_not_tried_again():
    async def scenario():
        tokenizer = SlowTokenizer()
        trials = GuidePrecheck(tokenizer)
        for _ in range(3):
            await trials.check(guided("a+"), "caller")
            await trials.check(replace(guided(""), constraint=None), "caller")
        return tokenizer.asked

    assert asyncio.run(scenario()) == ["a+"]


@pytest.mark.parametrize(("callers", "at_once"), [("aaaa", 1), ("abcd", 4)])
def test_each_caller_has_one_guide_tried_at_a_time(callers, at_once):
    async def scenario():
        tokenizer = SlowTokenizer()
        trials = GuidePrecheck(tokenizer)
        asked = [trials.check(guided(f"g{at}"), who) for at, who in enumerate(callers)]
        await asyncio.gather(*asked)
        return tokenizer.most

    assert asyncio.run(scenario()) == at_once
