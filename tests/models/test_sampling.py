"""Sampler: greedy, temperature, nucleus and seed, against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import Sampler

LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))


def drawn(count: int, *, temperature: float, top_p: float = 1.0, seed: int = 1) -> np.ndarray:
    sampler = Sampler(temperature=temperature, top_p=top_p, seed=seed)
    tokens = [sampler.next_token(LOGITS) for _ in range(count)]
    return np.bincount(tokens, minlength=len(LOGITS)) / count


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20))
def test_temperature_zero_takes_the_most_likely(values):
    logits = np.array(values, dtype=np.float32)
    assert Sampler(temperature=0, top_p=1, seed=None).next_token(logits) == logits.argmax()


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature):
    assert drawn(20, temperature=temperature)[0] == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_the_softmax_says(temperature):
    weights = np.exp(LOGITS / temperature)
    assert drawn(20_000, temperature=temperature) == pytest.approx(
        weights / weights.sum(), abs=0.02
    )


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, 1), (0.4, 1), (0.5, 1), (0.6, 2), (0.79, 2), (0.9, 3), (1.0, 4)]
)
def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p(top_p, kept):
    shares = drawn(4000, temperature=1, top_p=top_p)
    assert np.count_nonzero(shares) == kept
    assert shares[:kept].min() > 0


def test_the_same_seed_gives_the_same_tokens_and_no_seed_another():
    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(temperature=1, top_p=1, seed=seed)
        return [sampler.next_token(LOGITS) for _ in range(60)]

    assert tokens(2**64 - 1) == tokens(2**64 - 1)
    assert tokens(None) != tokens(None)
