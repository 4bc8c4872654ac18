"""Prompts over the whole stack: told again with log-probabilities, cut, special tokens, nvext."""

from __future__ import annotations

import pytest

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps for a while. " * 3


def score(client, prompt, **fields):
    asked = {"max_tokens": 0, "echo": True, "logprobs": 2, **fields}
    return client.completions.create(model="demo", prompt=prompt, **asked)


def test_a_prompt_is_scored_as_the_model_scores_it_while_it_writes(client):
    fields = {"temperature": 0, "max_tokens": 12, "extra_body": {"return_token_ids": True}}
    written = client.completions.create(model="demo", prompt=TEXT, logprobs=2, **fields).choices[0]
    ids = client.post("/../tokenize", body={"model": "demo", "prompt": TEXT}, cast_to=dict)[
        "tokens"
    ]
    scored = score(client, [*ids, *written.token_ids])
    assert (scored.choices[0].finish_reason, scored.usage.completion_tokens) == ("length", 0)
    assert scored.usage.prompt_tokens == len(ids) + len(written.token_ids)
    told = scored.choices[0].logprobs
    assert told.token_logprobs[0] is None
    assert told.top_logprobs[0] is None
    some = written.logprobs.token_logprobs
    assert told.token_logprobs[len(ids) :][: len(some)] == pytest.approx(some, abs=1e-2)
    assert told.tokens[len(ids) :][: len(some)] == written.logprobs.tokens


def test_a_harness_that_asks_for_one_token_finds_a_score_for_each_of_the_prompts(client):
    """All entries but the last are the prompt's, also where the model ends its answer with it."""
    asked = {"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}
    prompt = client.post("/chat/completions/render", body=asked, cast_to=dict)["prompt_token_ids"]
    fields = {"temperature": 0, "extra_body": {"return_token_ids": True}}
    answer = client.chat.completions.create(**asked, **fields).choices[0]
    assert answer.finish_reason == "stop"
    ids = [*prompt, *answer.token_ids[:-1]]
    scored = score(client, ids, max_tokens=1, logprobs=1, temperature=0)
    assert (scored.choices[0].finish_reason, scored.usage.completion_tokens) == ("stop", 1)
    told = scored.choices[0].logprobs
    assert len(told.token_logprobs) == len(told.top_logprobs) == len(ids) + 1
    pairs = zip(told.token_logprobs[1:], told.top_logprobs[1:], strict=True)
    assert all(own in top.values() for own, top in pairs)


def test_a_cached_prompt_has_the_same_scores(client):
    first, second = (score(client, TEXT) for _ in range(2))
    assert second.usage.prompt_tokens_details.cached_tokens == 0
    assert second.choices[0].logprobs.token_logprobs[1:] == pytest.approx(
        first.choices[0].logprobs.token_logprobs[1:], abs=1e-2
    )
    assert first.choices[0].text == TEXT


@pytest.mark.parametrize(("side", "kept"), [("left", slice(-5, None)), ("right", slice(5))])
def test_a_prompt_is_cut_to_its_tokens(client, side, kept):
    ids = client.post("/../tokenize", body={"model": "demo", "prompt": TEXT}, cast_to=dict)[
        "tokens"
    ]
    fields = {"truncate_prompt_tokens": 5, "truncation_side": side, "add_special_tokens": False}
    for prompt in (TEXT, ids):
        cut = score(client, prompt, extra_body={**fields, "return_tokens_as_token_ids": True})
        assert cut.usage.prompt_tokens == 5
        assert cut.choices[0].logprobs.tokens == [f"token_id:{token}" for token in ids[kept]]


def test_a_prompt_longer_than_the_context_is_cut_to_fit(client):
    long = TEXT * 300
    answer = client.completions.create(
        model="demo", prompt=long, max_tokens=7, extra_body={"truncate_prompt_tokens": -1}
    )
    length = client.models.retrieve("demo").context_length
    assert answer.usage.prompt_tokens == length - 7
