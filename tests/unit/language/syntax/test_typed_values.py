"""Bare text gets its type from the tool's schema, references and combinations included."""

from __future__ import annotations

import pytest

from proxy.language.syntax.element_calls import typed, types_of
from tests.unit.language.syntax.folding import answered, parser_of

REFERRED = {
    "$defs": {
        "Code": {"enum": ["12", "13"]},
        "Loop": {"allOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Code"}]},
    }
}


@pytest.mark.parametrize(
    ("text", "schema", "json_text"),
    [
        ("12", {"type": "string"}, '"12"'),
        ("12", {"type": "integer"}, "12"),
        ("twelve", {"type": "integer"}, '"twelve"'),
        ("True", {"type": "boolean"}, "true"),
        ("None", {"type": ["string", "null"]}, "null"),
        ("12", {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"12"'),
        ("a", {"enum": ["a", "b"]}, '"a"'),
        ("1", {"enum": ["1", "b"]}, '"1"'),
        ("{'k': [1]}", {"type": "object"}, '{"k": [1]}'),
        ("12", {}, "12"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("1e999", {"type": "number"}, '"1e999"'),
        ("-1e308", {"type": "number"}, "-1e308"),
        ("9" * 400, {"type": "integer"}, "9" * 400),
        ("12", {"allOf": [{"type": "string"}, {"maxLength": 3}]}, '"12"'),
        ("12", {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, "12"),
        ("12", {"allOf": [{"type": "string"}, {"type": "integer"}]}, "12"),
        ("12", {"$ref": "#/$defs/Code"}, '"12"'),
        ("12", {"anyOf": [{"$ref": "#/$defs/Code"}, {"type": "null"}]}, '"12"'),
        ("12", {"$ref": "#/$defs/Loop"}, '"12"'),
        ("12", {"$ref": "#/$defs/Missing"}, "12"),
        ("12", {"$ref": "https://example.com/code"}, "12"),
    ],
)
def test_bare_text_is_typed_by_the_schema(text, schema, json_text):
    assert typed(text, types_of(schema, REFERRED)) == json_text


def test_references_of_a_parameter_point_into_the_schema_of_the_call():
    tools = {"f": {"properties": {"a": {"$ref": "#/$defs/Code"}}, **REFERRED}}
    text = "<tool_call>f<arg_key>a</arg_key><arg_value>42</arg_value></tool_call>"
    assert answered(parser_of("glm45", tools), [text]).arguments == ['{"a": "42"}']


def test_each_reference_is_followed_once():
    names = [f"T{number}" for number in range(60)]
    following = {
        name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names
    }
    assert "string" in types_of({"$ref": "#/$defs/T0"}, {"$defs": following})
