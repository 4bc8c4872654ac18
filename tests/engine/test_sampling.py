"""sample: one behaviour a test, on logits small enough to see the answer; frequencies; failures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from port import SamplingParams, Token
from sampling.sampler import SamplingFailed, sample
from sampling.state import SamplerState

SHARES = [0.5, 0.3, 0.15, 0.05]
VOCAB = len(SHARES)
LOGITS = np.log(np.array(SHARES, dtype=np.float32))
END = frozenset({0})


def state(prompt=(), output=(), vocab=VOCAB, **params) -> SamplerState:
    result = SamplerState(SamplingParams(**params), prompt, END, vocab)
    for token in output:
        result.append(token)
    return result


def greedy(logits=LOGITS, *, bitmask=None, **kwargs) -> int:
    rows = np.array([logits], np.float32)
    mask = None if bitmask is None else np.array([[bitmask]], np.int32)
    return sample(rows, [state(temperature=0, vocab=rows.shape[1], **kwargs)], mask)[0].id


def shares(count: int, logits=LOGITS, **params) -> np.ndarray:
    """How often each token came in `count` draws, fifty sequences at a time."""
    states = [state(seed=seed, vocab=len(logits), **params) for seed in range(50)]
    tokens = []
    for _ in range(count // 50):
        answers = sample(np.array([logits] * 50, np.float32), states)
        for own, answer in zip(states, answers, strict=True):
            # What was drawn must not change the next draw, only the number must.
            own.append(0)
            tokens.append(answer.id)
    return np.bincount(tokens, minlength=len(logits)) / len(tokens)


def test_no_rows_are_no_tokens():
    assert sample(np.zeros((0, 4), np.float32), []) == []


def test_temperature_zero_takes_the_most_likely_and_of_equals_the_first():
    assert greedy([1, 3, 3, 2]) == 1


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
@pytest.mark.parametrize("params", [{}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}])
def test_a_tiny_temperature_is_greedy(temperature, params):
    assert shares(100, temperature=temperature, **params)[0] == 1
    huge = np.array([-3e38, 3e38, 1, 0], np.float32)
    assert shares(50, huge, temperature=temperature, **params)[1] == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("params", [{}, {"top_k": 3}, {"top_p": 0.96}, {"min_p": 0.2}])
def test_tokens_come_as_often_as_the_softmax_of_what_is_kept_says(temperature, params):
    weights = np.exp(LOGITS / temperature)
    weights /= weights.sum()
    if "min_p" in params:
        weights[weights < 0.2 * weights[0]] = 0
    elif "top_k" in params or ("top_p" in params and weights[3] < 0.04):
        weights[3] = 0
    found = shares(15_000, temperature=temperature, **params)
    assert found == pytest.approx(weights / weights.sum(), abs=0.02)
    assert (found > 0).tolist() == (weights > 0).tolist()


def test_a_wide_vocabulary_comes_as_often_as_its_softmax_says():
    """Over many blocks of the draw, the last one cut short."""
    logits = np.full(1100, -np.inf)
    favourites = [0, 255, 256, 700, 1023, 1024, 1099]
    logits[favourites] = np.log([4, 1, 2, 3, 1, 2, 4])
    found = shares(10_000, logits)
    assert found[favourites] == pytest.approx(np.array([4, 1, 2, 3, 1, 2, 4]) / 17, abs=0.02)
    assert found[favourites].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.0, 1), (1e-7, 1), (0.4, 1), (0.5, 1), (0.6, 2), (0.8, 2), (0.9, 3), (1.0, 4)],
)
def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p(top_p, kept):
    found = shares(2000, top_p=top_p)
    assert np.count_nonzero(found) == kept
    assert found[:kept].min() > 0


def test_equal_tokens_are_cut_by_id():
    flat = np.zeros(8, np.float32)
    assert (shares(1000, flat, top_p=0.5) > 0).tolist() == [True] * 4 + [False] * 4
    assert (shares(1000, flat, top_k=3) > 0).tolist() == [True] * 3 + [False] * 5
    assert (shares(1000, flat, min_p=1.0) > 0).all()


def test_top_p_is_of_what_top_k_and_min_p_keep():
    # 0.5 of 0.8 is 0.625: the first token alone has that, though it is below 0.6 of everything.
    assert np.count_nonzero(shares(500, top_k=2, top_p=0.6)) == 1
    assert np.count_nonzero(shares(500, min_p=0.5, top_p=0.6)) == 1


@pytest.mark.parametrize("vocab", [5000, 150_000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_the_nucleus_of_a_large_vocabulary_is_the_sorted_one(vocab, spread, top_p):
    """Peaked and flat: whichever floor finds it."""
    logits = np.random.default_rng(1).normal(scale=spread, size=vocab).astype(np.float32)
    order = np.argsort(-logits, kind="stable")
    weights = np.exp(logits[order].astype(np.float64))
    cumulative = np.cumsum(weights) / weights.sum()
    kept = int((cumulative < top_p).sum()) + 1
    states = [state(seed=seed, top_p=top_p, vocab=vocab) for seed in range(4)]
    answers = sample(np.stack([logits] * 4), states)
    for own, answer in zip(states, answers, strict=True):
        rank = np.searchsorted(cumulative[:kept] / cumulative[kept - 1], own.uniform())
        near = order[max(rank - 3, 0) : rank + 4] if spread else order[max(rank - 60, 0) :][:120]
        assert answer.id in near


@pytest.mark.parametrize("top_k", [1, 40, 1000, 60_000])
def test_top_k_of_a_large_vocabulary_keeps_the_best(top_k):
    logits = np.sort(np.random.default_rng(2).normal(size=150_000))[::-1].astype(np.float32)
    hot = [state(seed=seed, top_k=top_k, temperature=50, vocab=150_000) for seed in range(8)]
    ids = [answer.id for answer in sample(np.stack([logits] * 8), hot)]
    assert max(ids) < top_k
    assert max(ids) >= top_k // 3


def test_the_guide_wins_over_every_other_restriction():
    assert greedy(bitmask=0b1100) == 2
    assert greedy(bitmask=0b0001, min_tokens=5) == 0
    assert greedy(bitmask=0b0001, bad_words=((0,),)) == 0
    assert greedy(bitmask=0b0001, allowed_token_ids=(2, 3)) == 0
    assert greedy(bitmask=0b0011, bad_words=((1,),), min_tokens=5) == 0
    assert greedy(bitmask=0b0011, min_tokens=5) == 1
    assert greedy(bitmask=-1) == 0


def test_padding_beyond_the_vocabulary_is_never_drawn_nor_told():
    logits = np.array([[*LOGITS, 50, np.nan, np.inf]] * 3, np.float32)
    states = [state(temperature=0), state(seed=1), state(temperature=0, log_probs=20)]
    answers = sample(logits, states)
    assert all(answer.id < VOCAB for answer in answers)
    assert sum(math.exp(log) for _, log in answers[2].log_probs.top) == pytest.approx(1)


def test_the_top_twenty_of_a_large_vocabulary_with_ties():
    random = np.random.default_rng(5)
    logits = (random.integers(-60, 60, (3, 150_000)) / 4).astype(np.float32)
    logits[1] = 0
    states = [state(vocab=150_000, log_probs=count, seed=1) for count in (20, 20, 7)]
    answers = sample(logits.copy(), states)
    for row, own, answer in zip(logits, states, answers, strict=True):
        wide = row.astype(np.float64)
        logs = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
        top = np.argsort(-row, kind="stable")[: own.params.log_probs]
        assert [token for token, _ in answer.log_probs.top] == top.tolist()
        assert [log for _, log in answer.log_probs.top] == pytest.approx(logs[top], abs=1e-5)
        assert answer.log_probs.sampled == pytest.approx(logs[answer.id], abs=1e-5)


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, {"top_p": 0.5, "log_probs": 3}])
@pytest.mark.parametrize(
    "bad",
    [[np.nan] * 4, [-np.inf] * 4, [0, np.nan, 0, 0], [0, np.inf, 0, 0], [np.nan, np.inf, 0, 0]],
)
def test_a_row_that_is_not_finite_fails_alone(params, bad):
    logits = np.array([LOGITS, bad, LOGITS], np.float32)
    states = [state(seed=1, **params) for _ in range(3)]
    first, failed, last = sample(logits, states)
    assert isinstance(failed, SamplingFailed)
    assert "not finite" in str(failed)
    assert isinstance(first, Token)
    assert first == last


def test_a_guide_that_leaves_nothing_fails_its_row_alone():
    masks = np.array([[0], [-1]], np.int32)
    failed, token = sample(np.stack([LOGITS, LOGITS]), [state(), state(temperature=0)], masks)
    assert isinstance(failed, SamplingFailed)
    assert "guide" in str(failed)
    assert token == Token(0)
