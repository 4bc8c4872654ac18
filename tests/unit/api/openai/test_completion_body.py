"""A completion body as a GenerationRequest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.api.openai.completion_body import CompletionBody
from proxy.domain.request_limits import RequestLimits
from tests.doubles.engine import CARD, FACTS

OWN = replace(FACTS, default_max_tokens=40)


@pytest.mark.parametrize(
    ("fields", "facts", "limit"),
    [
        ({}, FACTS, 16),
        ({"max_tokens": None}, FACTS, 16),
        ({"max_tokens": 3}, FACTS, 3),
        ({"max_tokens": 0, "echo": True}, FACTS, 0),
        ({"min_tokens": 5}, FACTS, 16),
        ({"min_tokens": 20}, FACTS, 20),
        ({}, OWN, None),  # the tokenizer applies it
        ({"max_tokens": 3}, OWN, 3),
    ],
)
def test_without_a_limit_it_has_the_models_own_or_openais(fields, facts, limit):
    body = CompletionBody.model_validate({"model": "demo", "prompt": "hi", **fields})
    assert body.to_domain("somebody", replace(CARD, facts=facts)).max_tokens == limit


def test_openais_default_is_cut_to_the_models_limit():
    body = CompletionBody.model_validate({"model": "demo", "prompt": "hi"})
    card = replace(CARD, limits=RequestLimits(max_tokens=10))
    assert body.to_domain("somebody", card).max_tokens == 10
