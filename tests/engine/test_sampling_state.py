"""SamplerState: seeds, what an append changes, what ends a sequence, what is refused."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from port import BadParameter, SamplingParams
from prompt_encoder import CHARACTERS_AT_MOST, TOKENS_AT_MOST, bad_words_list
from refusal import Refusal
from sampling.bad_words import BadWords
from sampling.penalties import SeenTokens
from sampling.sampler import sample
from sampling.state import SamplerState

VOCAB = 50
END = frozenset({2})


def state(prompt=(), **params) -> SamplerState:
    return SamplerState(SamplingParams(**params), prompt, END, VOCAB)


def logits_after(tokens: list[int]) -> np.ndarray:
    """A made-up model: the logits are a function of the sequence."""
    random = np.random.default_rng(tokens)
    return random.normal(size=VOCAB).astype(np.float32)


def generate(own: SamplerState, tokens: list[int], count: int, others: int = 0) -> list[int]:
    """Continues `tokens`, in a batch with strangers that come and go."""
    tokens = list(tokens)
    for step in range(count):
        strangers = [state(seed=step, top_p=0.5, top_k=3) for _ in range(others and step % others)]
        rows = np.stack([logits_after([99, index]) for index in range(len(strangers))] or [[]])
        batch = np.concatenate([rows.reshape(-1, VOCAB), logits_after(tokens)[None]])
        token = sample(batch.astype(np.float32), [*strangers, own])[-1].id
        own.append(token)
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_the_same_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(seed):
    alone = generate(state(seed=seed), [], 150)
    assert generate(state(seed=seed), [], 150, others=4) == alone
    assert generate(state(seed=seed ^ 1), [], 150) != alone


def test_no_seed_gives_other_tokens_each_time():
    assert generate(state(), [], 60) != generate(state(), [], 60)


def test_the_nth_token_has_the_nth_number_of_the_seed():
    first, late = state(seed=7), state(seed=7)
    numbers = []
    for token in range(200):
        numbers.append(first.uniform())
        assert first.uniform() == numbers[-1]
        first.append(token % VOCAB)
    for _ in range(150):
        late.append(0)
    assert late.uniform() == numbers[150]
    assert len(set(numbers)) == 200
    assert 0 <= min(numbers) < 0.1 < 0.9 < max(numbers) < 1


@pytest.mark.parametrize(
    "params",
    [{}, {"repetition_penalty": 1.5}, {"frequency_penalty": 0.5}, {"bad_words": ((3, 4), (5,))}],
)
def test_a_preempted_sequence_goes_on_as_if_nothing_had_happened(params):
    whole = generate(state(seed=3, **params), [], 100)
    kept = state(seed=3, **params)
    tokens = generate(kept, [], 70)
    generate(state(seed=9), [], 5)
    assert generate(kept, tokens, 30) == whole


def test_many_tokens_are_counted_right():
    seen = SeenTokens([7, 7, 900, 2000], [1, 1])
    for token in range(1000):
        seen.append(token)
    seen.append(5)
    counts = dict(zip(seen.ids.tolist(), seen.counts.tolist(), strict=True))
    assert counts == {token: {5: 2, 1: 3}.get(token, 1) for token in range(1000)} | {2000: 0}


@pytest.mark.parametrize(
    ("params", "ending"),
    [
        ({}, {2}),
        ({"ignore_eos": True}, set()),
        ({"stop_token_ids": frozenset({7})}, {2, 7}),
        ({"stop_token_ids": frozenset({7}), "ignore_eos": True}, {7}),
        ({"min_tokens": 5}, {2}),
    ],
)
def test_what_ends_a_sequence(params, ending):
    own = state(**params)
    assert {token for token in range(VOCAB) if own.ends_with(token)} == ending


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"logit_bias": ((1, 1.0), (VOCAB, 1.0))}, "logit_bias"),
        ({"allowed_token_ids": (VOCAB - 1, -1)}, "allowed_token_ids"),
        ({"stop_token_ids": frozenset({7, VOCAB})}, "stop_token_ids"),
    ],
)
def test_a_token_that_does_not_exist_is_refused_by_its_parameter(params, param):
    with pytest.raises(BadParameter, match=rf"{param} names token .* of {VOCAB} tokens") as refused:
        state(**params)
    assert refused.value.param == param


def test_what_can_never_be_drawn_needs_no_ban():
    """The model itself may name an end token that it has no logit for; so may a caller, then."""
    bad_words, end = ((VOCAB,), (-1,), (1, VOCAB + 3)), frozenset({2, 10**9})
    params = SamplingParams(bad_words=bad_words, min_tokens=3, stop_token_ids=end)
    own = SamplerState(params, [1, VOCAB + 5], end, VOCAB)
    rising = np.arange(VOCAB, dtype=np.float32)[None]
    assert sample(rising, [own])[0].id in range(VOCAB)


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.5, "frequency_penalty": 0.5},
        {"presence_penalty": 0.5, "min_tokens": 40},
        {"min_tokens": 60},
        {"bad_words": ((3, 4), (5,), (7, 8, 9)), "repetition_penalty": 0.7},
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 39, 40, 41, 60])
def test_a_state_that_begins_with_generated_tokens_is_the_one_that_was_fed_them(params, cut):
    params = SamplingParams(seed=3, ignore_eos=False, **params)
    tokens = [token % VOCAB for token in range(3, 3 + cut)]
    fed = SamplerState(params, [1, 2], frozenset(), VOCAB)
    for token in tokens:
        fed.append(token)
    begun = SamplerState(params, [1, 2], frozenset(), VOCAB, tokens)
    assert (begun.generated, begun.uniform()) == (fed.generated, fed.uniform())
    assert [type(edit) for edit in begun.edits] == [type(edit) for edit in fed.edits]
    assert generate(begun, [1, 2, *tokens], 30) == generate(fed, [1, 2, *tokens], 30)


VOCAB_SIZE = 50
STEPS = 200
STEP_CPU_S = 0.0005  # a third of what a step cost when each word was compared

token = st.integers(0, 3)
words = st.lists(st.lists(token, min_size=1, max_size=5).map(tuple), max_size=12)


@given(words=words, prompt=st.lists(token, max_size=8), answer=st.lists(token, max_size=8))
def test_the_banned_tokens_are_those_that_complete_a_word(words, prompt, answer):
    bad_words = BadWords(words, prompt, VOCAB_SIZE)
    for next_token in answer:
        bad_words.append(next_token)
    text = tuple(prompt + answer)
    right = {w[-1] for w in words if len(w) == 1 or text[1 - len(w) :] == w[:-1]}
    assert set(bad_words.banned().tolist()) == right


def test_a_word_that_ends_outside_the_vocabulary_bans_nothing():
    assert not len(BadWords([(1, VOCAB_SIZE), (VOCAB_SIZE,), (-1,)], [1], VOCAB_SIZE).banned())


def step_cpu_s(words: list[tuple[int, ...]], prompt: list[int]) -> float:
    bad_words = BadWords(words, prompt, VOCAB_SIZE)
    began = time.thread_time()
    for _ in range(STEPS):
        bad_words.append(7)
        bad_words.banned()
    return (time.thread_time() - began) / STEPS


def of_length(count: int, length: int) -> list[tuple[int, ...]]:
    draw = random.Random(0)
    return [(*draw.choices(range(9), k=length - 2), 7, 8) for _ in range(count)]


@pytest.mark.parametrize(
    "words",
    [
        of_length(1024, 502),
        [(7,) * 500 + (last % VOCAB_SIZE,) for last in range(1024)],
        [(7,) * (length + 1) for length in range(180)],
        [(last % VOCAB_SIZE,) for last in range(2048)],
    ],
    ids=["one length", "one start", "every length that fits", "single tokens"],
)
def test_a_step_is_cheap_whatever_the_words(words):
    assert step_cpu_s(words, [7] * 600) < STEP_CPU_S


def test_words_that_are_too_long_all_together_are_refused_before_they_are_tokenized():
    with pytest.raises(Refusal, match=f"65537 characters: at most {CHARACTERS_AT_MOST}") as caught:
        bad_words_list(
            ["a" * (CHARACTERS_AT_MOST + 1)], lambda word: pytest.fail("it was tokenized")
        )
    assert caught.value.param == "bad_words"


def test_words_of_too_many_tokens_are_refused_by_name():
    with pytest.raises(Refusal, match=f"{2 * 8193} tokens.*at most {TOKENS_AT_MOST}"):
        bad_words_list(["ab"], lambda word: [len(word)] * 8193)
