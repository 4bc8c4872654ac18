"""Ids of calls: the model's own where it writes one that can be used."""

from __future__ import annotations

import pytest

from tests.unit.language.syntax.tools.folding import answered, parser_of


def test_kimi_keeps_the_model_s_own_id():
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    )
    assert answered(parser_of("kimi_k2"), [text]).ids == ["functions.f:7"]


def test_kimi_gives_a_call_a_new_id_where_the_model_repeats_one():
    """A result names its call by the id, so a history with one id for two calls is refused."""
    calls = "".join(
        f"<|tool_call_begin|>functions.f:{number}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
        for number in (1, 1, 1, 2)
    )
    text = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
    ids = answered(parser_of("kimi_k2"), [text]).ids
    assert ids[0] == "functions.f:1"
    assert (len(ids), len(set(ids))) == (4, 4)


@pytest.mark.parametrize(
    ("own_id", "tools", "name", "told_id"),
    [
        ("functions.a.f:1", "fg", "a.f", "functions.a.f:1"),
        ("f:1", "fg", "f", "f:1"),
        ("f", "fg", "f", "id0"),
        ("1", "f", "f", "id0"),
        ("1", "fg", "1", "id0"),
    ],
)
def test_kimi_leaves_out_parts_of_the_id(own_id, tools, name, told_id):
    text = f"<|tool_call_begin|>{own_id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    answer = answered(parser_of("kimi_k2", {tool: {} for tool in tools}), [text])
    assert (answer.names, answer.ids, answer.text) == ([name], [told_id], "")
