"""A prompt that begins as an earlier one has the same tokens, and only its rest is tokenized."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import prompt_cache
from prompt_cache import PromptCache
from tests.engine import test_plain_spans as kinds
from tests.fixtures.examples import examples

KINDS = ("demo", "byte_level", "sentencepiece", "phi", "unigram", "gapped")
TEXTS = ["Hello", " wörld", "\n", "  ", " 12", "…", "<|", "<s", "|>", "</s", "<|im_", "a" * 30]


def encoder(tokenizer):
    """Encodes, and keeps what it was asked for."""

    def encode(text: str) -> list[int]:
        asked.append(text)
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    asked: list[str] = []
    return encode, asked


@pytest.fixture
def _short_texts_too(monkeypatch):
    monkeypatch.setattr(prompt_cache, "FROM_CHARACTERS", 1)


@pytest.mark.usefixtures("_short_texts_too")
@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_prompt_has_the_tokens_that_it_has_alone(kind, data):
    tokenizer = getattr(kinds, kind)()
    special = [one.content for one in tokenizer.get_added_tokens_decoder().values()]
    parts = st.lists(st.sampled_from([*TEXTS, *special, *special]), max_size=20).map("".join)
    cache, (encode, _) = PromptCache(tokenizer), encoder(tokenizer)
    said = [""]
    for _ in range(data.draw(st.integers(1, 6))):
        before = data.draw(st.sampled_from(said))
        kept = data.draw(st.integers(0, len(before)))
        said.append(before[:kept] + data.draw(parts))
        salt = data.draw(st.sampled_from(["", "a"]))
        expected = tokenizer.encode(said[-1], add_special_tokens=False).ids
        assert cache.encode(said[-1], salt, encode) == expected


def conversation(turns: int) -> list[str]:
    """The prompt of each turn, in ChatML."""
    start, end = sorted(PromptCache(kinds.demo())._ids)[0], "\n"
    prompt, prompts = "", []
    for turn in range(turns):
        prompt += f"{start}user{end}{'Tell me more about it. ' * 60}{turn}{start}assistant{end}"
        prompts.append(prompt)
        prompt += "Of course, here it is. " * 60
    return prompts


def test_of_a_conversation_only_what_is_new_is_tokenized():
    tokenizer, prompts = kinds.demo(), conversation(20)
    cache, (encode, asked) = PromptCache(tokenizer), encoder(tokenizer)
    long = [one for one in prompts if len(one) >= prompt_cache.FROM_CHARACTERS]
    for prompt in prompts:
        assert cache.encode(prompt, "", encode) == encoder(tokenizer)[0](prompt)
    assert len(long) > 10
    for (before, prompt), seen in zip(pairwise(long), asked[-len(long) + 1 :], strict=True):
        assert len(seen) < len(prompt) - len(before) + 100
    assert len(cache._prompts) == 1  # each serves wherever the one before did


def test_another_salt_finds_nothing():
    cache, (encode, asked) = PromptCache(kinds.demo()), encoder(kinds.demo())
    prompt = conversation(20)[-1]
    for salt in ("a", "b", "a", "b", ""):
        cache.encode(prompt, salt, encode)
    assert [len(text) == len(prompt) for text in asked] == [True, True, False, False, True]


def test_its_size_is_bounded(monkeypatch):
    monkeypatch.setattr(prompt_cache, "MOST_BYTES", 1_000_000)
    cache, (encode, _) = PromptCache(kinds.demo()), encoder(kinds.demo())
    *_, prompt = conversation(10)
    for number in range(40):
        cache.encode(f"{number}{prompt}", "", encode)
        assert cache.size_bytes <= 1_000_000
    assert 1 < len(cache._prompts) <= prompt_cache.MOST_PROMPTS
    special = sorted(cache._ids)[0]
    for number in range(4):  # whose special tokens take more room than the text
        cache.encode(f"{number}{special * 8_000}", "", encode)
        assert sum(len(one.ends) for one in cache._prompts) <= 10_000


def test_to_look_costs_a_small_part_of_what_tokenizing_does():
    """Also where many long prompts share much, and where nothing but `<` stands in one."""
    tokenizer = kinds.demo()
    cache, (encode, _) = PromptCache(tokenizer), encoder(tokenizer)
    prompts = [f"{one}{number}" for number, one in enumerate([conversation(16)[-1]] * 16)]
    prompts.append("<" * len(prompts[0]))

    def cost(run) -> float:
        begun = time.process_time()
        for prompt in prompts:
            run(prompt)
        return time.process_time() - begun

    for prompt in prompts:
        cache.encode(prompt, "", encode)
    plain = min(cost(encode) for _ in range(2))
    assert min(cost(lambda prompt: cache.encode(prompt, "", encode)) for _ in range(2)) < plain
    assert min(cost(lambda prompt: cache._longest(prompt, "")) for _ in range(2)) < plain / 5
