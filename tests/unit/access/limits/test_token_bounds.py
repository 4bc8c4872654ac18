"""What a request can cost at most is never less than what it costs."""

from __future__ import annotations

import sys
import time
import unicodedata
from dataclasses import replace

import pytest

from proxy.access.limits.token_bounds import (
    ADDED_TOKENS,
    COUNTED_CHARACTERS,
    GROWTH,
    MOST_TIMES,
    output_bound,
    prompt_bound,
    prompt_bounds,
)
from proxy.domain.engine import EngineRequest
from proxy.domain.request import (
    GenerationRequest,
    PromptBatch,
    PromptLimit,
    Sampling,
    TextPrompt,
)
from tests.doubles.engine import CARD, FACTS

FACTS_100K = replace(FACTS, context_length=100_000)
LONG = replace(CARD, facts=replace(FACTS, context_length=10_000))


def engine_request(**fields: object) -> EngineRequest:
    return EngineRequest(
        **{"id": "r", "model": LONG, "timeout_s": 1, "sampling": Sampling(), **fields}
    )


@pytest.mark.parametrize(
    ("text", "bytes_at_least"),
    [("abc", 3), ("hж", 3), ("hé", 4), ("\ufdfa", 33), ("日本", 6), ("한국", 6), ("", 0)],
)
def test_a_prompt_has_at_most_a_token_for_each_byte_of_its_normalized_text(text, bytes_at_least):
    assert prompt_bound(engine_request(text=text)) == bytes_at_least + ADDED_TOKENS


def size(text: str) -> int:
    return len(text.encode())


def test_no_character_and_no_composition_is_normalized_to_more_bytes_than_the_bound():
    for char in map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))):
        normalized = unicodedata.normalize("NFKC", char)
        assert size(normalized) <= size(char) + GROWTH.get(char, 0) <= MOST_TIMES * size(char)
        # a whole text is decomposed, reordered and composed again
        decomposed = unicodedata.normalize("NFKD", char)
        assert size(unicodedata.normalize("NFC", decomposed)) <= size(decomposed)
        is_hangul = "\uac00" <= char <= "\ud7a3"  # nothing separates its parts: composed again
        assert is_hangul or size(decomposed) <= size(char) + GROWTH.get(char, 0)


def test_marks_in_the_wrong_order_do_not_cost_quadratic_time():
    """To normalize such a text of 60 KB takes 1.5 s."""
    text = "a" + "\u0300" * 15_000 + "\u0327" * 15_000
    began = time.thread_time()
    bound = prompt_bound(engine_request(text=text, model=replace(LONG, facts=FACTS_100K)))
    assert time.thread_time() - began < 0.3
    assert bound == size(text) + ADDED_TOKENS


def test_long_prompts_are_bounded_without_a_look_at_each_character():
    text = "é" * (COUNTED_CHARACTERS // 4)
    model = replace(LONG, facts=replace(FACTS, context_length=10**7))
    requests = [engine_request(id=str(n), text=text, model=model) for n in range(4)]
    assert prompt_bounds(requests)["0"] == len(text) * 3 + ADDED_TOKENS
    requests.append(engine_request(id="one more", text="é", model=model))
    assert prompt_bounds(requests)["0"] == size(text) * MOST_TIMES + ADDED_TOKENS


def test_token_ids_are_counted_and_limits_of_the_prompt_hold():
    assert prompt_bound(engine_request(token_ids=(1, 2, 3))) == 3 + ADDED_TOKENS
    assert prompt_bound(engine_request(text="x" * 20_000)) == 10_000
    limited = engine_request(text="x" * 500, prompt_limit=PromptLimit(tokens=30))
    assert prompt_bound(limited) == 30


TWO_PROMPTS = PromptBatch(prompts=(TextPrompt(text="a"), TextPrompt(text="b")))


@pytest.mark.parametrize(
    ("fields", "default", "most"),
    [
        ({"max_tokens": 7}, None, 7),
        ({"max_tokens": 7, "choices": 3}, None, 21),
        ({"max_tokens": 7, "choices": 2, "best_of": 5}, None, 35),
        ({"max_tokens": 7, "choices": 3, "prompt": TWO_PROMPTS}, None, 42),
        ({"max_tokens": 99_999}, None, 10_000),
        ({"max_tokens": 0}, None, 0),
        ({"token_cap": 50}, None, 50),
        ({}, None, 10_000),
        ({}, 64, 64),
        ({"token_cap": 9}, 64, 9),
    ],
)
def test_output_is_counted_for_every_choice_of_every_prompt(fields, default, most):
    card = replace(LONG, facts=replace(LONG.facts, default_max_tokens=default))
    request = {"id": "r", "model": "m", "prompt": TextPrompt(text="x"), **fields}
    assert output_bound(GenerationRequest(**request), card) == most
