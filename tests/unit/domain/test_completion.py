"""fold: what is no answer is refused; tests/api/answers/test_fold.py shows what is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.completion import fold
from proxy.domain.events import Finished, TextDelta
from proxy.domain.output import FinishReason, Usage

END = Finished(reason=FinishReason.LENGTH, usage=Usage(prompt_tokens=3, completion_tokens=2))


@pytest.mark.parametrize(
    "events", [[], [TextDelta("a")], [END, END], [END, TextDelta("a")], [replace(END, choice=1)]]
)
def test_events_without_exactly_one_end_are_an_error(events):
    with pytest.raises(ValueError, match=r"Finished"):
        fold(events)
