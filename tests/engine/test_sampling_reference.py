"""sample: every parameter in every mix, against the definitions; a row knows no other row."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from port import SamplingParams, Token
from sampling.sampler import SamplingFailed, sample
from sampling.state import SamplerState
from tests.engine.sampling_reference import Case, allowed, distribution, drawn, log_softmax
from tests.fixtures.examples import examples

SLACK = 1e-5


def params(vocab: int) -> st.SearchStrategy[SamplingParams]:
    """Penalties and biases are sums of powers of two: float32 holds every logit exactly."""
    token = st.integers(0, vocab - 1)
    tokens = st.lists(token, min_size=1, max_size=4)
    words = st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=3)
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1e-30, 0.3, 0.7, 1.0, 1.0, 2.0]),
        top_k=st.sampled_from([0, 0, 0, 1, 2, 5, 40, 10**6]),
        top_p=st.sampled_from([1.0, 1.0, 0.0, 0.1, 0.37, 0.5, 0.9, 0.99]),
        min_p=st.sampled_from([0.0, 0.0, 0.013, 0.11, 0.6, 1.0]),
        seed=st.integers(0, 2**64 - 1),
        repetition_penalty=st.sampled_from([1.0, 1.0, 0.5, 2.0, 4.0]),
        presence_penalty=st.sampled_from([0.0, 0.0, 0.75, -1.5]),
        frequency_penalty=st.sampled_from([0.0, 0.0, 0.25, -0.5]),
        logit_bias=st.dictionaries(token, st.sampled_from([-100.0, -2.0, 1.5, 100.0]), max_size=3)
        .map(dict.items)
        .map(tuple),
        allowed_token_ids=st.one_of(st.none(), st.none(), tokens.map(tuple)),
        bad_words=words.map(tuple),
        min_tokens=st.sampled_from([0, 0, 2, 9]),
        ignore_eos=st.booleans(),
        stop_token_ids=st.lists(token, max_size=2).map(frozenset),
        log_probs=st.sampled_from([None, None, 0, 3, 20]),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[Case]:
    vocab = draw(st.sampled_from([1, 2, 5, 12, 40, 256, 300, 700]))
    token = st.integers(0, vocab - 1)
    ids = st.lists(token, max_size=6)
    cases = []
    for _ in range(draw(st.integers(1, 5))):
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        logits = random.integers(-40, 40, vocab) / draw(st.sampled_from([1, 4, 8]))
        logits[random.random(vocab) < draw(st.sampled_from([0, 0, 0.5]))] = -np.inf
        logits[draw(token)] = 2.5
        guide = st.none() | st.frozensets(token, min_size=1, max_size=8)
        cases.append(
            Case(
                logits=logits.tolist(),
                params=draw(params(vocab)),
                prompt=draw(ids),
                output=draw(ids),
                end_ids=frozenset(draw(st.lists(token, max_size=2))),
                guide=draw(guide),
            )
        )
    return cases


def state(case: Case) -> SamplerState:
    state = SamplerState(case.params, case.prompt, case.end_ids, len(case.logits))
    for token in case.output:
        state.append(token)
    return state


def matrix(cases: list[Case], padding: int) -> np.ndarray:
    """With padding that would win, were it looked at."""
    rows = [[*case.logits, *[1000.0] * padding] for case in cases]
    return np.array(rows, np.float32)


def mask(cases: list[Case], padding: int) -> np.ndarray | None:
    if all(case.guide is None for case in cases):
        return None
    width = len(cases[0].logits) + padding
    words = np.full((len(cases), -(-width // 32)), -1, np.int32)
    for row, case in zip(words, cases, strict=True):
        if case.guide is not None:
            bits = [sum(1 << token % 32 for token in case.guide if token // 32 == word)
                    for word in range(len(row))]  # fmt: skip
            row[:] = np.array(bits, np.uint32).view(np.int32)
    return words


def check(case: Case, answer: Token | SamplingFailed) -> None:
    expected = distribution(case)
    if not expected:
        assert isinstance(answer, SamplingFailed)
        return
    assert isinstance(answer, Token)
    assert answer.id in drawn(expected, state(case).uniform(), SLACK)
    if case.params.log_probs is None:
        assert answer.log_probs is None
        return
    logs = log_softmax(allowed(case))
    order = sorted(range(len(logs)), key=lambda token: (-logs[token], token))
    top = [token for token in order if logs[token] > -np.inf][: case.params.log_probs]
    assert answer.log_probs is not None
    assert answer.log_probs.sampled == pytest.approx(logs[answer.id], abs=1e-5)
    assert [token for token, _ in answer.log_probs.top] == top
    assert [log for _, log in answer.log_probs.top] == pytest.approx(
        [logs[token] for token in top], abs=1e-5
    )


@settings(max_examples=examples(200))
@given(batches(), st.sampled_from([0, 0, 3, 70]))
def test_each_row_of_a_mixed_batch_is_what_the_definitions_say(cases, padding):
    answers = sample(matrix(cases, padding), [state(case) for case in cases], mask(cases, padding))
    for case, answer in zip(cases, answers, strict=True):
        check(case, answer)


@settings(max_examples=examples(80))
@given(batches())
def test_a_row_gives_the_same_token_and_log_probs_alone_as_in_a_batch(cases):
    together = sample(matrix(cases, 0), [state(case) for case in cases], mask(cases, 0))
    for case, answer in zip(cases, together, strict=True):
        (alone,) = sample(matrix([case], 0), [state(case)], mask([case], 0))
        assert str(alone) == str(answer)


@settings(max_examples=examples(60))
@given(batches())
def test_a_batch_of_one_kind_is_what_the_definitions_say(cases):
    """Every row with the first one's parameters: the paths without any row left out."""
    cases = [dataclasses.replace(case, params=cases[0].params) for case in cases]
    answers = sample(matrix(cases, 0), [state(case) for case in cases], mask(cases, 0))
    for case, answer in zip(cases, answers, strict=True):
        check(case, answer)
