"""Keywords that no grammar enforces; tests/engine compares them with what xgrammar permits."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from proxy.language.structured.keywords import (
    FORMATS,
    IGNORED,
    PAIRS_AT_MOST,
    are_disjoint,
    uncheckable,
    unenforced,
)

DOCS = (Path(__file__).parents[4] / "docs" / "guided_decoding.md").read_text()
STRING = {"type": "string"}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    id: UUID


class Owner(BaseModel):
    """Keywords that applications usually need."""

    name: Annotated[str, Field(max_length=20)]
    colour: Colour | None
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    by_day: dict[str, int]
    weight: float
    friend: Owner | None = None


@pytest.mark.parametrize(
    "schema",
    [
        to_strict_json_schema(Owner),
        Owner.model_json_schema(),
        {"type": "array", "items": STRING, "uniqueItems": False},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {"const": 1, "type": "integer"},
        {"enum": ["a", "b"], "type": "string"},
        {"$ref": "#/$defs/a", "description": "said of it", "$defs": {"a": STRING}},
        {"type": "integer", "multipleOf": 5},
        {"type": "string", "format": "date-time"},
    ],
)
def test_an_enforced_schema_has_no_unenforced_keywords(schema):
    assert unenforced(schema) == ()


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"type": "array", "items": STRING, "uniqueItems": True}, {"uniqueItems"}),
        ({"type": "object", "properties": {"a": {"not": STRING}}}, {"not"}),
        ({"if": STRING, "then": {"const": "a"}}, {"if"}),
        ({"if": False, "else": {"const": "a"}}, {"if"}),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"dependentRequired"}),
        ({"allOf": [STRING, {"type": "string", "maxLength": 3}]}, {"allOf"}),
        ({"oneOf": [STRING, {"enum": ["a"]}]}, {"oneOf"}),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, {"oneOf"}),
        ({"anyOf": [STRING], "required": ["a"]}, {"required"}),
        ({"$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": STRING}}, {"maxLength"}),
        ({"$ref": "#/x/a", "x": {"a": {"type": "array", "uniqueItems": True}}}, {"uniqueItems"}),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a", **STRING}}}, {"$ref"}),
        ({"type": "object", "properties": {}, "required": ["a"]}, {"required"}),
        ({"type": "number", "multipleOf": 5}, {"multipleOf"}),
        ({"type": ["integer", "number"], "multipleOf": 5}, {"multipleOf"}),
        ({"type": ["integer", "array"], "multipleOf": 5}, {"multipleOf"}),
        ({"type": ["integer", "string", "null"], "multipleOf": 5}, set()),
        ({"type": "integer", "multipleOf": 1.5}, set()),
        ({"type": "integer", "multipleOf": 0.1}, set()),
        ({"type": "integer", "multipleOf": 150.5}, {"multipleOf"}),
        ({"type": "number", "exclusiveMaximum": -1e20}, {"exclusiveMaximum"}),
        ({"type": ["null", "number"], "exclusiveMinimum": 2**33}, {"exclusiveMinimum"}),
        ({"type": "number", "exclusiveMinimum": 2**33 - 1, "maximum": 1e20}, set()),
        ({"type": "integer", "exclusiveMinimum": 2**33}, set()),
        ({"type": "integer", "multipleOf": 5, "exclusiveMinimum": 10**4300 - 1}, {"multipleOf"}),
        ({**STRING, "pattern": "^a+$", "maxLength": 3}, {"maxLength"}),
        ({**STRING, "pattern": "^.$"}, {"pattern"}),
        ({**STRING, "pattern": "^[^a]$"}, {"pattern"}),
        ({**STRING, "pattern": "^[a-\ud7ff\ue000-\uffff]$"}, set()),
        ({**STRING, "pattern": "^[一-\uffff]$"}, {"pattern"}),
        ({**STRING, "pattern": r"^a\.b$"}, set()),
        ({**STRING, "pattern": r"\Aa\z"}, {"pattern"}),
        ({**STRING, "pattern": r"^\x{41}$"}, {"pattern"}),
        ({**STRING, "pattern": r"^\x41\.A$"}, set()),
        ({**STRING, "pattern": r"^\x41\\A$"}, {"pattern"}),
        ({**STRING, "pattern": "^[0-9]+'[0-9]+\"$"}, {"pattern"}),
        ({**STRING, "pattern": r"^\x22$"}, {"pattern"}),
        ({**STRING, "pattern": "^a\b$"}, {"pattern"}),
        ({**STRING, "pattern": "/^[0-9]{4}$/"}, {"pattern"}),
        ({**STRING, "pattern": "^$|^(a|^b$)|(?:^c)[$^]$"}, set()),
        ({**STRING, "pattern": "^(?!@@)[@a-z]+$"}, {"pattern"}),
        (
            {**STRING, "format": "uri", "pattern": "^https:", "maxLength": 9},
            {"pattern", "maxLength"},
        ),
        ({**STRING, "format": "email"}, {"format"}),
        ({**STRING, "format": "hostname", "maxLength": 9}, {"format", "maxLength"}),
        ({"properties": {"é": STRING}, "additionalProperties": False}, set()),
        ({"properties": {"e": STRING}, "additionalProperties": True}, set()),
        ({"properties": {"é": STRING}, "additionalProperties": True}, {"additionalProperties"}),
        ({"properties": {'"': STRING}, "unevaluatedProperties": {}}, {"unevaluatedProperties"}),
        ({"properties": {"e": STRING}, "minProperties": 2}, set()),
        (
            {"properties": {"e": STRING}, "minProperties": 2, "additionalProperties": {}},
            {"minProperties"},
        ),
        ({"type": "object", "patternProperties": {"^a": STRING}}, set()),
        ({"type": "object", "patternProperties": {"^(?!a)": STRING}}, {"patternProperties"}),
        (
            {"type": "object", "properties": {"ab": STRING}, "patternProperties": {"^a": STRING}},
            {"patternProperties"},
        ),
        (
            {"type": "object", "properties": {"b": STRING}, "patternProperties": {"^a": STRING}},
            set(),
        ),
        (
            {
                "type": "object",
                "properties": {"b": STRING},
                "patternProperties": {"^a": STRING},
                "additionalProperties": {},
            },
            {"patternProperties"},
        ),
        ({**STRING, "format": "iri"}, {"format"}),
        ({"minimum": 3}, {"minimum"}),
        ({"const": 1, "type": "string"}, {"type"}),
        ({"type": "array", "contains": STRING}, {"contains"}),
        (
            {"type": "object", "properties": {"a": STRING}, "propertyNames": {"maxLength": 3}},
            {"propertyNames", "maxLength"},
        ),
    ],
)
def test_unenforced_keywords_are_named(schema, names):
    assert set(unenforced(schema)) == names


def test_a_model_with_a_set_and_a_decimal_names_them():
    class Wide(BaseModel):
        tags: set[str]
        price: Annotated[Decimal, Field(multiple_of=Decimal("0.01"))]

    assert "uniqueItems" in unenforced(Wide.model_json_schema())


def test_uncheckable_keywords_are_named():
    assert uncheckable({**STRING, "format": "iri"}) == ()
    assert uncheckable({**STRING, "format": "colour"}) == ("format",)
    assert uncheckable({**STRING, "contentEncoding": "base64"}) == ("contentEncoding",)


def test_the_documentation_lists_the_same():
    ignored = DOCS.split("**Ignored or loosened**")[1].split("**Refused")[0]
    narrower = DOCS.split("**Narrower")[1].split("**Ignored")[0]
    documented = set(re.findall(r"`([$\w]+)`", ignored + narrower))
    assert set(IGNORED) - documented == set()
    enforced = DOCS.split("**Enforced")[1].split("**Narrower")[0]
    named = set(re.findall(r"[\w-]+", enforced.split("`format`:")[1]))
    assert named == set(FORMATS)


VALUES = [0, 1, 1.0, True, False, None, "", "1", [1], [True], {"a": 1}, {"a": True}, {}]
MANY = PAIRS_AT_MOST * 3


def const(name: str, value: object) -> dict:
    return {"type": "object", "properties": {name: {"const": value}}, "required": [name]}


@given(st.lists(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2), min_size=2, max_size=4))
def test_branches_that_list_values_are_disjoint_if_they_share_none(lists):
    branches = [{"enum": values} for values in lists]
    accepted = [sum(jsonschema_rs.is_valid(one, value) for one in branches) for value in VALUES]
    assert are_disjoint(branches, {}) is (max(accepted) < 2)


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ([{"const": i} for i in range(MANY)], True),
        ([*({"const": i} for i in range(MANY)), {"enum": ["x", 5.0]}], False),
        ([const("kind", i) for i in range(MANY)], True),
        ([*(const("kind", i) for i in range(MANY)), const("kind", 0)], False),
        ([*(const("kind", i) for i in range(MANY)), const("other", 0)], False),
        ([{"type": "string"}, {"type": "integer"}] * PAIRS_AT_MOST, False),
        ([{"type": "string"}, {"type": "number"}, const("a", 1), const("a", 2)], True),
        ([{"type": "number"}, {"type": "integer"}], False),
        ([{"type": "object", "properties": {"a": const("b", i)}, "required": ["a"]}
          for i in range(MANY)], True),
    ],
)  # fmt: skip
def test_many_branches_need_one_fact_that_separates_all(branches, expected):
    assert are_disjoint(branches, {}) is expected
