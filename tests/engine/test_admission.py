"""Admission: exact to the token."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission import CUT_MARGIN_TOKENS, Admission, OperatorLimits
from refusal import Refusal

ADMISSION = Admission(context_length=16, vocab_size=100)


@given(st.integers(1, 40), st.none() | st.integers(-2, 40))
def test_what_fits_is_admitted_and_nothing_else(prompt_tokens, max_tokens):
    room = 16 - prompt_tokens
    fits = room >= 1 and (max_tokens is None or 1 <= max_tokens <= room)
    if fits:
        expected = room if max_tokens is None else max_tokens
        assert ADMISSION.new_tokens(prompt_tokens, max_tokens) == expected
    else:
        with pytest.raises(Refusal):
            ADMISSION.new_tokens(prompt_tokens, max_tokens)


@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 40))
def test_a_max_tokens_that_may_be_lowered_is_lowered_to_the_room(prompt_tokens, max_tokens, cap):
    limits = OperatorLimits(default_max_tokens=cap)
    room = ADMISSION.context_length - prompt_tokens
    if room >= 1:
        assert ADMISSION.new_tokens(prompt_tokens, max_tokens, limits) == min(max_tokens, room)
    else:
        with pytest.raises(Refusal):
            ADMISSION.new_tokens(prompt_tokens, max_tokens, limits)


def test_max_tokens_may_be_0_if_the_prompt_is_echoed():
    assert ADMISSION.new_tokens(16, 0, may_be_none=True) == 0
    for tokens, max_tokens in ((17, 0), (16, 1), (16, None)):
        with pytest.raises(Refusal):
            ADMISSION.new_tokens(tokens, max_tokens, may_be_none=True)


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "code", "param", "said"),
    [
        (0, 5, "invalid_parameter", "prompt", "no tokens"),
        (16, None, "context_length_exceeded", "prompt", "the prompt has 16"),
        (10, 7, "context_length_exceeded", "max_tokens", "at most 6 new tokens"),
        (10, 0, "invalid_parameter", "max_tokens", "0 is less than 1"),
    ],
)
def test_a_refusal_says_what_and_how_to_mend_it(prompt_tokens, max_tokens, code, param, said):
    with pytest.raises(Refusal) as caught:
        ADMISSION.new_tokens(prompt_tokens, max_tokens)
    refusal = json.loads(caught.value.as_json("r1"))
    assert (refusal["code"], refusal["param"]) == (code, param)
    assert said in refusal["message"]


def test_a_start_that_cannot_fit_is_refused_a_doubtful_one_is_not():
    ADMISSION.check_start(16 + CUT_MARGIN_TOKENS)
    with pytest.raises(Refusal, match="has more than 16"):
        ADMISSION.check_start(17 + CUT_MARGIN_TOKENS)


def test_ids_outside_the_vocabulary_are_named():
    ADMISSION.check_ids([0, 99])
    with pytest.raises(Refusal, match="token id 100 at position 1"):
        ADMISSION.check_ids([5, 100])


@pytest.mark.parametrize(
    ("max_tokens", "default", "room"), [(None, None, 15), (5, None, 11), (None, 6, 10), (99, 1, 1)]
)
def test_a_prompt_may_be_cut_to_what_leaves_room_for_the_answer(max_tokens, default, room):
    admission = Admission(context_length=16, vocab_size=100, default_max_tokens=default)
    assert admission.prompt_room(max_tokens) == room


@given(st.integers(1, 15), st.none() | st.integers(1, 40), st.integers(1, 40))
def test_a_limit_cuts_the_default_and_nothing_that_was_asked_for(prompt_tokens, default, limit):
    admission = Admission(context_length=16, vocab_size=100, default_max_tokens=default)
    limits, room = OperatorLimits(default_max_tokens=limit), 16 - prompt_tokens
    usual = room if default is None else min(room, default)
    assert admission.new_tokens(prompt_tokens, None) == usual
    assert admission.new_tokens(prompt_tokens, None, limits) == min(usual, limit)
    assert admission.new_tokens(prompt_tokens, room, limits) == room


def test_the_start_of_a_long_prompt_is_measured_by_the_lower_limit():
    limits = OperatorLimits(prompt_tokens=10)
    ADMISSION.check_start(10 + CUT_MARGIN_TOKENS, limits)
    with pytest.raises(Refusal, match=r"at most 10 tokens .* has more than 10"):
        ADMISSION.check_start(11 + CUT_MARGIN_TOKENS, limits)
    with pytest.raises(Refusal, match="context length is 16"):
        ADMISSION.check_start(17 + CUT_MARGIN_TOKENS, OperatorLimits(prompt_tokens=99))


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (OperatorLimits(prompt_tokens=4), 4),
        (OperatorLimits(prompt_tokens=99), 15),
        (OperatorLimits(default_max_tokens=6), 10),
    ],
)
def test_a_prompt_is_cut_to_its_limit_where_that_is_less_than_the_room(limits, room):
    assert ADMISSION.prompt_room(None, limits) == room
