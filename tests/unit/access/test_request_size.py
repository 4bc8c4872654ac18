"""Bounds on a request's size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.access.request_size import check_copies
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import InvalidRequest
from proxy.domain.request import (
    GenerationRequest,
    PromptBatch,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from tests.doubles.engine import CARD

SENT = EngineRequest(id="r", model=CARD, timeout_s=9, sampling=Sampling())
REGEX = Constraint(GuideKind.REGEX, "a" * 300)


def request(prompt="x", **fields) -> GenerationRequest:
    prompt = TextPrompt(text=prompt) if isinstance(prompt, str) else prompt
    return GenerationRequest(id="r", model="demo", prompt=prompt, **fields)


@pytest.mark.parametrize(
    "asked",
    [
        request("é" * 100, choices=6),
        request("x" * 300, best_of=4),
        request("x", choices=4, constraint=REGEX),
        request(TokenPrompt(ids=(1,) * 100), choices=3),
        request(PromptBatch(prompts=(TextPrompt(text="x" * 400),) * 2), choices=2),
        request("x", choices=5, sampling=Sampling(bad_words=("w" * 50,) * 5)),
        request("x", choices=5, sampling=Sampling(allowed_token_ids=(1,) * 60)),
    ],
)
def test_choices_times_what_each_is_sent_is_bounded(asked):
    sent = [
        replace(SENT, text=getattr(prompt, "text", None), token_ids=getattr(prompt, "ids", None))
        for prompt in asked.prompts
    ]
    with pytest.raises(InvalidRequest, match="at most 1000") as refused:
        check_copies(asked, sent, most=1000)
    assert refused.value.param == "choices"
    check_copies(asked, sent, most=10_000)
