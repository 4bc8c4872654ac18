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


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("n:<escape>5<escape>", {"n": 5}),
        ("n:5", {"n": 5}),
        ("s:<escape>5<escape>", {"s": "5"}),
        ("b:<escape>true<escape>,s:<escape>true<escape>", {"b": True, "s": "true"}),
        ("n:<escape>five<escape>", {"n": "five"}),
        ("l:[<escape>5<escape>]", {"l": ["5"]}),
        ("x:<escape>5<escape>", {"x": 5}),
    ],
)
def test_functiongemma_writes_numbers_as_strings_too(written, arguments):
    types = {"n": "integer", "s": "string", "b": "boolean", "l": "array"}
    tools = {"f": {"properties": {name: {"type": one} for name, one in types.items()}}}
    text = f"<start_function_call>call:f{{{written}}}<end_function_call>"
    for pieces in ([text], list(text)):
        answer = answered(parser_of("functiongemma", tools), pieces)
        assert answer.calls == [{"name": "f", "arguments": arguments}]


def minimax(name: str, value: str) -> str:
    return f'<invoke name="f"><parameter name="{name}">{value}</parameter></invoke>'


def deepseek(name: str, is_string: str, value: str) -> str:
    parameter = f'<｜DSML｜parameter name="{name}" string="{is_string}">{value}</｜DSML｜parameter>'
    return f'<｜DSML｜invoke name="f">{parameter}</｜DSML｜invoke>'


N = {"n": {"type": "integer"}}


@pytest.mark.parametrize(
    ("family", "text", "properties", "arguments"),
    [
        # As in MiniMax's guide to tool calling (MiniMax-M2.5, 60fa60fd).
        ("minimax_m2", minimax("x", "42"), N, '{"x": "42"}'),
        ("minimax_m2", minimax("x", "null"), N, '{"x": null}'),
        ("minimax_m2", minimax("n", "42"), N, '{"n": 42}'),
        ("minimax_m2", minimax("x", "42"), {"x": {}}, '{"x": 42}'),
        ("deepseek_v32", deepseek("n", "true", "42"), N, '{"n": 42}'),
        ("deepseek_v32", deepseek("n", "true", "x"), N, '{"n": "x"}'),
        ("deepseek_v32", deepseek("x", "true", "42"), N, '{"x": "42"}'),
        ("deepseek_v32", deepseek("n", "true", "42"), {"n": {}}, '{"n": "42"}'),
        # Arguments in one parameter.
        *(
            (
                "deepseek_v32",
                deepseek(name, is_string, '{"n": 1, "x": [2]}'),
                N,
                '{"n": 1, "x": [2]}',
            )
            for name in ("arguments", "input")
            for is_string in ("true", "false")
        ),
        ("deepseek_v32", deepseek("input", "false", "{}"), N, "{}"),
        ("deepseek_v32", deepseek("input", "true", "x"), N, '{"input": "x"}'),
        *(
            ("deepseek_v32", deepseek("input", "false", '{"n": 1}'), listed, '{"input": {"n": 1}}')
            for listed in ({"input": {"type": "object"}}, {}, None)
        ),
    ],
)
def test_values_that_the_schema_does_not_expect(family, text, properties, arguments):
    tools = {"f": {"properties": properties}}
    for pieces in ([text], list(text)):
        answer = answered(parser_of(family, tools), pieces)
        assert (answer.arguments, answer.text) == ([arguments], "")


def test_arguments_in_one_parameter_join_the_others():
    first = deepseek("n", "false", "1").removesuffix("</｜DSML｜invoke>")
    text = first + deepseek("input", "false", '{"x": 2}').removeprefix('<｜DSML｜invoke name="f">')
    assert answered(parser_of("deepseek_v32", {"f": {"properties": N}}), [text]).arguments == [
        '{"n": 1, "x": 2}'
    ]


def test_each_reference_is_followed_once():
    names = [f"T{number}" for number in range(60)]
    following = {
        name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names
    }
    assert "string" in types_of({"$ref": "#/$defs/T0"}, {"$defs": following})
