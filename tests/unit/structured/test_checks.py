"""Checks of finished answers."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.doubles.engine import CARD
from triton_openai.proxy.domain.completion import Answer
from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.errors import InvalidRequest
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.domain.tools import ToolCall
from triton_openai.proxy.structured.asked import Asked, Form, GuideLimits, constraint
from triton_openai.proxy.structured.checks import check_of, guided, unenforced_keywords

WITHOUT = replace(CARD, capabilities=CARD.capabilities - {"constraint"})


def schema(value: object, *, is_strict: bool = False) -> Constraint:
    asked = Asked(field="guided_json", form=Form.SCHEMA, value=value, is_strict=is_strict)
    return constraint(asked, GuideLimits())


def regex(pattern: str) -> Constraint:
    asked = Asked(field="guided_regex", form=Form.REGEX, value=pattern)
    return constraint(asked, GuideLimits())


def wrong(wanted: Constraint, text: str) -> str | None:
    check = check_of(wanted, WITHOUT)
    return check.of(Answer(text=text, reason=FinishReason.STOP))


def test_each_violation_is_told_with_its_path():
    inner = {"type": "object", "properties": {"n": {"maximum": 3}}, "required": ["n"]}
    wanted = schema({"type": "object", "properties": {"list": {"items": inner}}})
    said = wrong(wanted, '{"list": [{"n": 1}, {"n": 5}, {}]}')
    assert "at $.list[1].n: 5 is greater than the maximum of 3" in said
    assert 'at $.list[2]: "n" is a required property' in said
    assert wrong(wanted, '{"list": []}') is None


@pytest.mark.parametrize("text", ["", "```json\n1\n```", "1 2", "NaN", "[1,]"])
def test_what_is_no_json_does_not_conform(text):
    assert wrong(schema({}), text).startswith("it is not JSON")


def test_a_regular_expression_must_match_in_full():
    assert wrong(regex("a|bc"), "bc") is None
    for text in ("abc", "ab", "a\n", ""):
        assert wrong(regex("a|bc"), text)


def test_a_regular_expression_that_cannot_be_checked_is_the_callers_mistake():
    with pytest.raises(InvalidRequest) as caught:
        check_of(regex("(a"), WITHOUT)
    assert caught.value.param == "guided_regex"


def test_calls_in_place_of_text_and_an_answer_that_was_cut_are_not_to_blame():
    check = check_of(schema({"type": "null"}), WITHOUT)
    call = ToolCall(id="c", name="f", arguments="{}")
    assert check.of(Answer(text=" ", reason=FinishReason.TOOL_CALLS, calls=(call,))) is None
    assert check.of(Answer(text="{", reason=FinishReason.LENGTH)) is None


def test_a_recursive_schema_and_a_deep_answer_cost_little():
    """Telling each way in which it is wrong would take 2 ** 60 of them."""
    array = {"type": "array", "items": {"$ref": "#"}}
    wanted = schema({"anyOf": [array, {**array, "maxItems": 1}]})
    start = time.process_time()
    assert "does not conform" in wrong(wanted, "[" * 60 + "1" + "]" * 60)
    assert time.process_time() - start < 1


def test_who_holds_the_answer_to_what():
    unique = {"type": "array", "uniqueItems": True}
    for wanted, is_guided, is_checked, names in [
        (schema({"type": "null"}, is_strict=True), True, False, ()),
        (schema(unique), True, False, ("uniqueItems",)),
        (schema(unique, is_strict=True), True, True, ()),
    ]:
        assert (guided(wanted, CARD) is not None) is is_guided
        assert (check_of(wanted, CARD) is not None) is is_checked
        assert unenforced_keywords(wanted, CARD) == names
        assert guided(wanted, WITHOUT) is None
        assert check_of(wanted, WITHOUT) is not None
        assert unenforced_keywords(wanted, WITHOUT) == ()
