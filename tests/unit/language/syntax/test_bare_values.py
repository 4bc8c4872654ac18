"""A bare value ends at the closing mark behind which the call continues: marks that it holds are
text, and an end that is missing or misspelt does not put marks into it.
"""

from __future__ import annotations

import json
import time

import pytest

from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from tests.unit.language.syntax.folding import answered, parser_of
from tests.unit.language.syntax.syntaxes import SYNTAXES

KEYS = ("content", "path")
TOOLS = {"w": {"type": "object", "properties": {key: {"type": "string"} for key in KEYS}}}
# family: the closing mark of a value, the begin of an element, the ends of the call; %s is the key
MARKS = {
    "qwen3_coder": ("\n</parameter>", "<parameter=%s>", ("</function>",)),
    "mimo": ("</parameter>", "<parameter=%s>", ("</function>",)),
    "minimax_m2": ("</parameter>", '<parameter name="%s">', ("</invoke>",)),
    "glm45": ("</arg_value>", "<arg_key>%s</arg_key><arg_value>", ("</tool_call>",)),
    "muse_glimmer": (
        "</atem:parameter>",
        '<atem:parameter name="%s">',
        ("</atem:invoke>",),
    ),
    "deepseek_v32": (
        "</｜DSML｜parameter>",
        '<｜DSML｜parameter name="%s" string="true">',
        ("</｜DSML｜invoke>",),
    ),
    "kimi_k3": (
        "<|close|>argument<|sep|>",
        '<|open|>argument key="%s" type="string"<|sep|>',
        ("<|close|>call<|sep|>",),
    ),
    "cohere_xml": (
        "</cofl:value>",
        '<cofl:value name="%s" type="raw">',
        ("</cofl:tool_call>",),
    ),
    "minimax_m3": ("]<]minimax[>[</%s>", "]<]minimax[>[<%s>", ("]<]minimax[>[</invoke>",)),
}
every_syntax = pytest.mark.parametrize("family", MARKS)


def end_of(family: str, key: str) -> str:
    return MARKS[family][0].replace("%s", key)


def said(family: str, text: str):
    """Checks that every cut gives the same result, and returns it."""
    answer = answered(parser_of(family, TOOLS), [text])
    assert answered(parser_of(family, TOOLS), list(text)) == answer
    for at in range(1, len(text), 7):
        assert answered(parser_of(family, TOOLS), [text[:at], text[at:]]) == answer
    return answer


def written(family: str, content: str) -> str:
    return SYNTAXES[family]([{"name": "w", "arguments": {"content": content, "path": "a.md"}}])


@every_syntax
@pytest.mark.parametrize(
    "content",
    [
        "it ends with {end} here",
        "{end}",
        "{end}{end}\n",
        "one {begin}1{end} and",
        "{begin}1{end}\n{begin}2{end} more",
        "the call {call} and more",
        "{call} {end}.",
        "{begin}",
    ],
)
def test_marks_that_a_value_holds_are_text(family, content):
    _, begin, (call, *_) = MARKS[family]
    end = end_of(family, "content")
    value = content.format(end=end, begin=begin % "x", call=call)
    answer = said(family, written(family, value))
    assert answer.calls == [{"name": "w", "arguments": {"content": value, "path": "a.md"}}]
    assert answer.text == ""


@every_syntax
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "See:\n{}", "{}\nand", "a {} b"])
def test_a_value_may_hold_whole_calls(family, key, around):
    """A file about tool calls, whose own call is the first argument, or the last."""
    inner = SYNTAXES[family]([{"name": "ls", "arguments": {"dir": "x", "all": "y"}}])
    arguments = {"content": "text", "path": "a.md"} | {key: around.replace("{}", inner)}
    answer = said(family, SYNTAXES[family]([{"name": "w", "arguments": arguments}]))
    assert answer.calls == [{"name": "w", "arguments": arguments}]
    assert answer.text == ""
    assert not answer.is_cut


@pytest.mark.parametrize("family", SYNTAXES)
@pytest.mark.parametrize("content", ["\n", "a\n", "a\n\n", "\na]", "a<", "<\n<", "a\n ", "]\n"])
def test_line_breaks_before_an_end_belong_to_the_value(family, content):
    answer = said(family, written(family, content))
    assert answer.calls == [{"name": "w", "arguments": {"content": content, "path": "a.md"}}]


@every_syntax
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("written_as", ["", "{stem}1>", "{stem}/>", "{stem}"])
def test_an_end_that_is_missing_or_misspelt_puts_no_mark_into_a_value(family, key, written_as):
    end = end_of(family, key)
    text = SYNTAXES[family]([{"name": "w", "arguments": {"content": "text", "path": "a.md"}}])
    value = {"content": "text", "path": "a.md"}[key]
    bad = f"{value}{written_as.format(stem=end[:-1])}"
    assert f"{value}{end}" in text
    answer = said(family, text.replace(f"{value}{end}", bad))
    assert answer.calls == [{"name": "w", "arguments": {"content": "text", "path": "a.md"}}]
    assert answer.text == ""


ANY_END = {"minimax_m3": ("]<]minimax[>[</", ">"), "kimi_k3": ("<|close|>", "<|sep|>")}


@pytest.mark.parametrize("family", ANY_END)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("name", ["pth", "arguments", "x" * 30, "/", "{key} ", ""])
@pytest.mark.parametrize("has_last", [True, False])
def test_an_end_that_has_another_name_puts_no_mark_into_a_value(family, key, kind, name, has_last):
    begin, last = ANY_END[family]
    tools = {"w": {"type": "object", "properties": {one: {"type": kind} for one in KEYS}}}
    arguments = {"content": "12", "path": "34"}
    if kind == "integer":
        arguments = {one: int(value) for one, value in arguments.items()}
    text = SYNTAXES[family]([{"name": "w", "arguments": arguments}])
    value = f"{arguments[key]}"
    wrong = f"{value}{begin}{name.format(key=key)}{last * has_last}"
    bad = text.replace(f"{value}{end_of(family, key)}", wrong)
    assert bad != text
    for pieces in ([bad], list(bad)):
        answer = answered(parser_of(family, tools), pieces)
        assert (answer.calls, answer.text) == ([{"name": "w", "arguments": arguments}], "")


@every_syntax
def test_words_behind_a_closed_value_are_text(family):
    end = end_of(family, "path")
    text = written(family, "x").replace(f"a.md{end}", f"a.md{end} so what")
    answer = said(family, text)
    assert answer.calls == [{"name": "w", "arguments": {"content": "x", "path": "a.md"}}]
    assert "so what" in answer.text


@every_syntax
@pytest.mark.parametrize("piece", ["{end}", "{begin}", "{call}", "{end} ", "{end}x"])
def test_a_value_of_marks_costs_no_more_than_its_length(family, piece):
    _, begin, (call, *_) = MARKS[family]
    end = end_of(family, "content")
    part = piece.format(end=end, begin=begin % "x", call=call)

    def spent(count: int) -> float:
        text = written(family, part * count)
        pieces = [text[at : at + 16] for at in range(0, len(text), 16)]
        parser = FAMILIES[family](TOOLS)
        start = time.thread_time()
        for one in pieces:
            parser.push(one)
        return time.thread_time() - start

    assert spent(4_000) < 24 * spent(500) + 0.05


@every_syntax
def test_what_is_held_back_behind_a_closing_mark_is_bounded(family):
    end = end_of(family, "content")
    text = written(family, f"a{end} {'x' * 20_000}!")
    parser = parser_of(family, TOOLS)
    seen = parser.push(text[: text.index("!")])
    held = 20_000 - sum(one.fragment.count("x") for one in seen if hasattr(one, "fragment"))
    assert held < 100
    assert json.loads(answered(parser_of(family, TOOLS), [text]).arguments[0])["path"] == "a.md"
