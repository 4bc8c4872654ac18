"""structural_tags: a caller's tag in the form that the engine receives."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.domain.errors import RequestError
from proxy.domain.tools import Tool
from proxy.language.structured.constraint_request import (
    ConstraintRequest,
    Examiner,
    Form,
    GuideLimits,
    constraint_of,
)
from proxy.language.structured.schema import SchemaLimits
from proxy.language.structured.structural_tags import WHITESPACE_AT_MOST, checked
from tests.doubles.sandbox import InProcess

ANY = {"type": "json_schema", "json_schema": {"type": "object"}}


def test_the_white_space_of_json_is_bounded_wherever_it_stands():
    tag = {"type": "tag", "begin": "<", "content": ANY, "end": ">"}
    found = checked({"format": {"type": "sequence", "elements": [tag]}}, "f", SchemaLimits())
    content = found["elements"][0]["content"]
    assert content == {**ANY, "max_whitespace_cnt": WHITESPACE_AT_MOST}
    assert "max_whitespace_cnt" not in tag["content"]


def test_the_callers_own_bound_stays():
    given = {**ANY, "max_whitespace_cnt": 2}
    assert checked({"format": given}, "f", SchemaLimits()) == given


@pytest.mark.parametrize("levels", [130, 900, 20_000])
def test_a_deeply_nested_tag_is_refused(levels):
    text = '{"format":' + "[" * levels + "]" * levels + "}"
    with pytest.raises(RequestError, match=r"deep|recursion") as caught:
        checked(text, "f", SchemaLimits())
    assert caught.value.param == "f"


def test_a_schema_as_deep_as_it_may_be_stands_in_formats():
    schema: dict = {"type": "object"}
    for _ in range(SchemaLimits().depth - 1):
        schema = {"not": schema}
    tag = {**ANY, "json_schema": schema}
    for _ in range(10):
        tag = {"type": "sequence", "elements": [tag]}
    assert json.dumps(schema) in json.dumps(checked({"format": tag}, "f", SchemaLimits()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r'{"format": {"type": "tag", "begin": "\ud800"}}', "not JSON"),
        (r'{"format": {"type": "json_schema", "json_schema": {"const": "\ud800"}}}', "not JSON"),
        ('{"format": {"at_least": NaN}}', "not JSON"),
    ],
)
def test_a_text_that_json_cannot_represent_is_refused(text, said):
    request = ConstraintRequest(field="structural_tag", form=Form.STRUCTURAL_TAG, value=text)
    with pytest.raises(RequestError, match=said) as caught:
        constraint_of(request, GuideLimits())
    assert caught.value.param == "structural_tag"


@pytest.mark.parametrize("kind", ["json_schema", "qwen_xml_parameter"])
def test_a_branch_without_a_value_is_dropped_from_a_tags_schema_and_a_tools(kind):
    def schema(branches: list) -> dict:
        return {"type": "object", "properties": {"a": {"anyOf": branches}}}

    given, left = schema([False, {"enum": []}, {"type": "null"}]), schema([{"type": "null"}])
    tag = {"type": "tag", "begin": "<", "content": {"type": kind, "json_schema": given}, "end": ">"}
    found = checked({"format": {"type": "or", "elements": [tag]}}, "f", SchemaLimits())
    assert found["elements"][0]["content"]["json_schema"] == left
    assert tag["content"]["json_schema"] == given
    examiner = Examiner(InProcess(), GuideLimits())
    for _ in range(2):
        (tool,) = asyncio.run(examiner.tools([Tool(name="f", parameters=given)], "caller"))
        assert tool.parameters == left


def test_a_type_that_is_no_text_is_left_to_xgrammar():
    assert checked({"format": {"type": ["tag"]}}, "f", SchemaLimits()) == {"type": ["tag"]}
