"""Words that are never completed: which tokens are banned, and what that costs at each step."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bad_words_list import CHARACTERS_AT_MOST, TOKENS_AT_MOST, bad_words_list
from refusal import Refusal
from sampling.bad_words import BadWords

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
