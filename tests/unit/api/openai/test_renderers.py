"""Events of several choices as chunks: how a stream begins."""

from __future__ import annotations

import pytest

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.renderers import ChatRenderer
from proxy.domain.events import Finished, TextDelta, ToolCallStarted
from proxy.domain.output import FinishReason, Usage
from tests.doubles.engine import CARD

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


def chunks(*events, n: int) -> list[tuple[int, dict]]:
    """(index, delta) of each choice's part, in order."""
    body = ChatCompletionBody.model_validate({**BODY, "n": n})
    renderer = ChatRenderer(body, body.to_domain("somebody"), CARD)
    parts = [chunk["choices"][0] for event in events for chunk in renderer.chunks(event)]
    return [(part["index"], part["delta"]) for part in parts]


def finished(choice: int) -> Finished:
    return Finished(reason=FinishReason.STOP, usage=Usage(), choice=choice)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_every_choice_begins_before_any_can_end(first):
    """OpenAI's accumulator for Java ends with the last choice that it has seen."""
    found = chunks(TextDelta("a", choice=first), finished(first), n=3)
    openings, rest = found[:3], found[3:]
    assert [(index, delta["role"]) for index, delta in openings] == [
        (index, "assistant") for index in range(3)
    ]
    assert rest == [(first, {"content": "a"}), (first, {})]


def test_a_choice_begins_once():
    events = [TextDelta("a", choice=0), TextDelta("b", choice=1), finished(0), finished(1)]
    roles = [index for index, delta in chunks(*events, n=2) if "role" in delta]
    assert roles == [0, 1]


def test_the_content_is_null_where_a_call_comes_first():
    (_, opening), _ = chunks(ToolCallStarted(index=0, id="c1", name="f"), n=1)
    assert opening["content"] is None
