"""Checks of a caller's schema before any engine receives it."""

from __future__ import annotations

import json
import time

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from proxy.domain.errors import RequestError
from proxy.language.structured.schema import SchemaLimits, checked, unfolding

LIMITS = SchemaLimits()


class Node(BaseModel):
    name: str
    children: list[Node]


def needs(**keywords) -> dict:
    """An object that needs a property `x` of its own kind, or of these keywords."""
    x = keywords or {"$ref": "#"}
    return {"type": "object", "properties": {"x": x}, "required": ["x"]}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"$defs": {"x": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
        {"$defs": {"a/b~c d": {}}, "items": {"$ref": "#/$defs/a~1b~0c%20d"}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "null"},
        {"enum": [{"$ref": "#/nowhere"}]},
        needs(anyOf=[{"$ref": "#"}, {"type": "null"}]),
        needs(type="array", items={"$ref": "#"}),
        {**needs(), "type": ["object", "null"]},
        {**needs(), "required": []},
        {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 1},
        {"type": "number", "minimum": 0.1234561, "maximum": 0.123457},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.000002},
        {"type": "number", "exclusiveMinimum": 1e20},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            **{"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 2},
        },
        {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": 3, "type": "array"},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            **{"items": {"$ref": "#/x"}, "x": {"exclusiveMinimum": "a"}},
        },
        {"$ref": "#/x", "x": {"type": "integer", "multipleOf": 0, "minimum": 1, "maximum": 2}},
        to_strict_json_schema(Node),
    ],
)
def test_a_schema_passes_as_json_and_so_does_its_text(schema):
    assert json.loads(checked(schema, "x", LIMITS)) == schema
    assert json.loads(checked(json.dumps(schema), "x", LIMITS)) == schema


NULL = {"type": "null"}
# None of them has a value.
LOOP = needs(**{"$ref": "#/$defs/loop"})
EMPTY = [
    LOOP,
    {"type": "integer", "minimum": 5, "maximum": 4},
    {"type": ["integer", "number"], "exclusiveMinimum": 5, "maximum": 5},
    {"type": "number", "minimum": 0.1234567891, "maximum": 0.1234567899},
    {"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 2.5},
    {"type": "string", "minLength": 2, "maxLength": 1},
    {"type": "array", "minItems": 2, "maxItems": 1},
    {"type": "object", "minProperties": 2, "maxProperties": 1},
    {"type": "array", "items": {"enum": []}, "minItems": 1},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"allOf": [{"type": "null"}, {"enum": []}]},
    {"oneOf": [False, {"enum": []}]},
    {"$ref": "#/$defs/none"},
    False,
]


@pytest.mark.parametrize("empty", EMPTY, ids=str)
@pytest.mark.parametrize(
    ("around", "left"),
    [
        (lambda one: {"anyOf": [one, NULL]}, {"anyOf": [NULL]}),
        (lambda one: {"oneOf": [NULL, one]}, {"oneOf": [NULL]}),
        (lambda one: {"items": {"anyOf": [one, NULL, one]}}, {"items": {"anyOf": [NULL]}}),
        (lambda one: {"anyOf": [{"anyOf": [one]}, NULL]}, {"anyOf": [NULL]}),
        (lambda one: {"$ref": "#/x", "x": {"not": one}}, None),
        (lambda one: {"not": {"items": one}}, None),
        (lambda one: {"if": one, "then": one, **NULL}, None),
        (lambda one: {"not": one, "$defs": {"unused": one}}, None),
        (lambda one: {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"items": one}}}, None),
        (lambda one: {"enum": [{"anyOf": [one]}]}, None),
        (
            lambda one: {"$ref": "#/x/y", "x": {"y": {"anyOf": [NULL, one]}, "z": one}},
            {"y": [NULL]},
        ),
    ],
)
def test_a_branch_without_a_value_is_dropped_and_nothing_under_not_is_refused(empty, around, left):
    schema = around(empty) | {"$comment": "as it was"}
    defs = {"none": {"enum": []}, "loop": LOOP, **schema.get("$defs", {})}
    given = {**schema, "$defs": defs}
    found = json.loads(checked(given, "x", LIMITS))
    if left == {"y": [NULL]}:
        assert found["x"]["y"] == {"anyOf": [NULL]}
    else:
        assert found == (given if left is None else {**given, **left})
    assert found == json.loads(checked(found, "x", LIMITS))


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": ["integer", "null"], "minimum": 5, "maximum": 4}, ["null"]),
        ({"type": ["number", "string"], "minimum": 1, "exclusiveMaximum": 1}, ["string"]),
        ({"type": ["integer", "number"], "minimum": 0.5, "maximum": 0.7}, ["number"]),
        ({"type": ["string", "array"], "minItems": 2, "maxItems": 1}, ["string"]),
        ({"type": ["integer", "null"], "minimum": 4, "maximum": 4}, ["integer", "null"]),
    ],
)
def test_a_type_without_a_value_is_dropped(schema, types):
    for given in (schema, {"$ref": "#/$defs/a", "$defs": {"a": schema}}):
        found = json.loads(checked(given, "x", LIMITS))
        assert found.get("$defs", {}).get("a", found) == {**schema, "type": types}


def doubling(keyword: str, step) -> dict:
    """Thirty schemas, each of the next one twice: a billion, unfolded."""
    defs = {
        f"d{i}": {
            keyword: [step({"$ref": f"#/$defs/d{i + 1}"}), step({"$ref": f"#/$defs/d{i + 1}"})]
        }
        for i in range(30)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, "d30": {"type": "null"}}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("[1]", "not an object"),
        ("{", "not JSON"),
        (r'{"const": "\ud800"}', "not JSON"),
        (r'{"\ud800": 1}', "not JSON"),
        ({"type": "thing"}, "'type'"),
        ({"properties": {"a": {"minLength": -1}}}, "'minLength'"),
        ({"properties": {"a": 3}}, "not of types"),
        ({"pattern": "("}, "regex"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"$ref": "#none"}, "does not exist"),
        ({"$ref": "http://127.0.0.1:1/x"}, "only references within"),
        ({"$ref": "file:///etc/passwd"}, "only references within"),
        ({"$schema": "http://127.0.0.1:1/x"}, "meta-schema"),
        ({"$ref": "#"}, "'#' leads only to itself"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "leads only to itself"),
        ({"$ref": "#/x/a", "x": {"a": {"$ref": "#/x/a"}}}, "'#/x/a' leads only to itself"),
        ({"$ref": "#/x", "x": {"$id": "http://a/b"}}, r"\$id .http://a/b. within it"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
            },
            "leads only to itself",
        ),
        ({"items": {"$id": "http://a/b"}}, "'http://a/b' within it"),
        ({"$id": "http://a/b", "$ref": "http://a/b"}, "is not followed"),
        (doubling("anyOf", lambda one: one), "unfold to more than 50000"),
        (doubling("anyOf", lambda one: {"items": one}), "unfold to more than 50000"),
        ({"minimum": float("nan")}, "not JSON"),
        (needs(), "contains itself"),
        (needs(allOf=[{"$ref": "#"}]), "contains itself"),
        (needs(type="array", items={"$ref": "#"}, minItems=1), "contains itself"),
        (needs(type="array", prefixItems=[{"$ref": "#"}], minItems=1), "contains itself"),
        ({**needs(), "required": [], "minProperties": 1}, "contains itself"),
        ({"properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "contains itself"),
        ({"anyOf": [needs(**{"$ref": "#/anyOf/0"}), {"$ref": "#/anyOf/2"}, {}]}, "contains itself"),
        ({"items": {"enum": []}}, "cannot be written"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "cannot be written"),
        ({"type": "integer", "minimum": 3.2, "exclusiveMaximum": 4}, "cannot be written"),
        ({"type": "integer", "minimum": 8, "maximum": 13, "multipleOf": 7}, "cannot be written"),
        (needs(type="string", minLength=2, maxLength=1), "contradict"),
        ({"items": {"type": "array", "minItems": 2, "maxItems": 1}}, "contradict"),
        ({"type": "array", "items": False, "minItems": 1}, "cannot be written"),
        ({"oneOf": [{"enum": []}, False]}, "cannot be written"),
        ({"$ref": "#/x/y", "x": {"y": {"items": {"enum": []}}}}, "cannot be written"),
        ({"allOf": [{}, {"type": "integer", "minimum": 5, "maximum": 4}]}, "cannot be written"),
        *(
            ({"type": kind, low: 0.1234567891, high: 0.1234567899}, "no number of 6 decimals")
            for kind in ("number", ["number"], ["integer", "number"])
            for low in ("minimum", "exclusiveMinimum")
            for high in ("maximum", "exclusiveMaximum")
        ),
        (
            {"items": {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.000001}},
            "no number of 6 decimals",
        ),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason_and_the_field(schema, said):
    with pytest.raises(RequestError, match=said) as caught:
        checked(schema, "guided_json", LIMITS)
    assert caught.value.param == "guided_json"
    assert "'guided_json'" in caught.value.message
    assert len(caught.value.message) < 400


def test_a_schema_as_large_as_may_be_costs_little_time():
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(4000)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, "d4000": {"type": "null"}}}
    start = time.process_time()
    checked(schema, "x", LIMITS)
    assert time.process_time() - start < 2


def test_recursion_counts_once():
    node = {"anyOf": [{"items": {"$ref": "#"}}, {"contains": {"$ref": "#"}}]}
    assert unfolding(node).is_recursive
    assert unfolding(node).size < 10
    assert not unfolding({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}).is_recursive
