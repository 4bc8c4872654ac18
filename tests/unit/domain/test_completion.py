"""fold: events of one choice add up to its answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.completion import fold
from proxy.domain.events import Finished, TextDelta
from proxy.domain.output import FinishReason, Usage

END = Finished(reason=FinishReason.LENGTH, usage=Usage(prompt_tokens=3, completion_tokens=2))


@given(st.lists(st.text()))
def test_the_text_is_the_sum_of_the_deltas(texts):
    completion = fold([*map(TextDelta, texts), END])
    assert completion.text == "".join(texts)
    assert (completion.reason, completion.usage) == (END.reason, END.usage)


@pytest.mark.parametrize("events", [[], [TextDelta("a")], [END, END], [END, TextDelta("a")]])
def test_events_without_exactly_one_end_are_an_error(events):
    with pytest.raises(ValueError, match=r"Finished"):
        fold(events)


def test_total_tokens_is_the_sum():
    assert END.usage.total_tokens == 5


def test_choices_are_folded_apart_and_their_usage_together():
    events = [TextDelta("a", choice=1), TextDelta("b"), replace(END, choice=1), TextDelta("c"), END]
    completion = fold(events)
    assert [answer.text for answer in completion.choices] == ["bc", "a"]
    assert completion.usage == END.usage + END.usage


def test_a_choice_that_is_missing_is_an_error():
    with pytest.raises(ValueError, match="Finished"):
        fold([replace(END, choice=1)])
