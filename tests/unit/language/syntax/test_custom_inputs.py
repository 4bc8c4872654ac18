"""Inputs of custom tools: the same text for every cut, and a defined one for odd arguments."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted
from proxy.language.structured.escaped_grammar import IN_MARKUP
from proxy.language.syntax.custom_inputs import CustomInputs
from tests.strategies import cuts

STARTED = ToolCallStarted(index=0, id="c", name="run")
# Escapes, entities and halves of characters: what a cut could spoil.
ODD = st.text(st.sampled_from('"\\\n\t\x00é😀&<;ltamp\u2028{}')) | st.text()


def inputs(pieces: list[str], *, is_in_markup: bool = False) -> str:
    custom = CustomInputs({"run": is_in_markup})
    events = custom.decoded([STARTED])
    for piece in pieces:
        events += custom.decoded([ToolCallArguments(index=0, fragment=piece)])
    events += custom.decoded([], is_last=True)
    assert events[0].is_custom
    return "".join(event.fragment for event in events[1:])


@given(ODD, st.booleans(), st.booleans(), st.data())
def test_any_cut_gives_the_text(text, is_ascii, is_in_markup, data):
    written = IN_MARKUP.text(text) if is_in_markup else text
    arguments = json.dumps({"input": written}, ensure_ascii=is_ascii)
    assert inputs(data.draw(cuts(arguments)), is_in_markup=is_in_markup) == text


@given(st.text(st.sampled_from('{}"input: \\udc8390&lt;x,')), st.booleans(), st.data())
def test_of_any_arguments_every_cut_gives_the_same(arguments, is_in_markup, data):
    whole = inputs([arguments], is_in_markup=is_in_markup)
    assert inputs(data.draw(cuts(arguments)), is_in_markup=is_in_markup) == whole


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", ""),
        (" { }", ""),
        ("", ""),
        ('{"patch": "a"}', '{"patch": "a"}'),
        ('{"x": 1, "input": "a"}', '{"x": 1, "input": "a"}'),
        ('{"input": ["a"]}', '{"input": ["a"]}'),
        ('{"input": null}', '{"input": null}'),
        ('{ "input" :\n"a" }\n', "a"),
        ('{"input": "a", "x": 1}', 'a, "x": 1}'),
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"input": "\\ude00\\ud83d!"}', "\ufffd\ufffd!"),
        # cut off
        ('{"inp', ""),
        ('{"input": "a\\', "a"),
        ('{"input": "a\\u00e', "a"),
        ('{"input": "a"', "a"),
    ],
)
def test_odd_arguments_have_an_input_too(arguments, text):
    assert inputs([arguments]) == text


def test_other_calls_and_text_stay_as_they_are():
    custom = CustomInputs({"run": False})
    other = ToolCallStarted(index=1, id="d", name="f")
    events = [STARTED, ToolCallArguments(index=0, fragment='{"input": "a\\')]
    others = [TextDelta("so"), other, ToolCallArguments(index=1, fragment='{"input": "b"}')]
    found = custom.decoded([*events, *others])
    assert found[1:] == [ToolCallArguments(index=0, fragment="a"), *others]
    assert custom.decoded([STARTED], is_last=True)[0].is_custom


def test_long_inputs_stream_in_linear_time():
    pieces = ['{"input": "', *(['\\n"'[:2], "x" * 20, "\\u00e9"] * 20_000), '"}']
    assert inputs(pieces) == ("\n" + "x" * 20 + "é") * 20_000
