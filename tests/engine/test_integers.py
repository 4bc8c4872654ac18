"""Integers under the guide of a schema are multiples within its bounds, or the keyword is named."""

from __future__ import annotations

import json
import random

import pytest
from xgrammar import GrammarMatcher

from grammars.integers import integers_of, rules_of
from guides.compiler import GuideCompiler, GuideError
from port import Guide
from proxy.language.structured.checks import compiled
from proxy.language.structured.keywords import unenforced

FAR = 2**63
# Schemas of integers, and of more, with a few of their values.
SCHEMAS = [
    ({"multipleOf": 5, "minimum": 0, "maximum": 100_000}, [0, 5, 79245, 100_000]),
    ({"multipleOf": 5}, [-10, 0, 10**15]),
    ({"multipleOf": 7, "minimum": -30}, [-28, 0, 7 * 10**14]),
    ({"multipleOf": 60, "exclusiveMaximum": 600}, [540, 0, -(10**15) * 6]),
    ({"multipleOf": 97, "minimum": 0, "maximum": 100_000}, [97, 99_910]),
    ({"multipleOf": 997, "minimum": -20_000, "maximum": 99_999}, [-997, 0, 99_700]),
    ({"multipleOf": 97}, [-97, 97 * 10**20]),
    ({"multipleOf": 86_400, "minimum": 1}, [86_400, 86_400_000]),
    ({"multipleOf": 10**6}, [0, -(10**6), 10**15]),
    ({"multipleOf": 10**20}, [0, 10**20]),
    ({"multipleOf": 5.0, "maximum": 9e3}, [9000, -5]),
    ({"multipleOf": 2.5}, [5, -10]),
    ({"multipleOf": 0.5, "minimum": 0.5}, [1, 2, 3]),
    ({"minimum": 3.5}, [4, 10**20]),
    ({"exclusiveMinimum": 3.5, "maximum": 9.5}, [4, 9]),
    ({"exclusiveMinimum": 3.0, "exclusiveMaximum": 5.0}, [4]),
    ({"minimum": 1e3, "exclusiveMinimum": 7}, [1000]),
    ({"minimum": -0.5, "maximum": 0.5}, [0]),
    ({"maximum": -0.5}, [-1]),
    ({"minimum": FAR}, [FAR, 10**19]),
    ({"exclusiveMinimum": FAR - 1, "maximum": FAR + 5}, [FAR, FAR + 5]),
    ({"minimum": -(10**20), "maximum": 10**20}, [-(10**20), 0, 10**20]),
    ({"maximum": 1e22, "multipleOf": 3}, [-3, 10**22 - 1]),
    ({"minimum": 1e23, "maximum": 2e23}, [10**23]),
    ({"type": ["integer", "null"], "multipleOf": 7, "maximum": 14.5}, [None, 14]),
    ({"type": ["string", "integer"], "minimum": FAR, "minLength": 2}, ["ab", FAR]),
    ({"type": ["integer", "number"], "minimum": 3.5}, [3.5, 4]),
    ({"multipleOf": 97, "minimum": 0}, [97]),  # too many states
    ({"multipleOf": 0.1}, [3, -1]),
    ({"multipleOf": 1.15, "minimum": 0}, [23, 46]),
    ({"multipleOf": 150.5}, [301]),  # and xgrammar ignores it
    ({"type": ["integer", "boolean", "number"], "multipleOf": 5}, [5, True]),
]
chance = random.Random(0)
NUMBERS = [
    *range(-120, 120),
    *(sign * (10**power + step) for sign in (1, -1) for power in range(3, 24) for step in (-1, 0)),
    *(FAR + step for step in range(-3, 9)),
    *(chance.randint(-(10**5), 10**5) for _ in range(200)),
]


@pytest.fixture(scope="module")
def compiler(vocabulary):
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    yield compiler
    compiler.close()


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
@pytest.mark.parametrize(("keywords", "values"), SCHEMAS, ids=str)
def test_a_number_is_valid_or_refused(compiler, keywords, values, nested):
    schema = {"type": "integer", **keywords}
    if nested:
        schema = {"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": schema}}
    grammar = compiler.compile(Guide("json_schema", json.dumps(schema))).result().grammar
    validator, has_names = compiled(schema), bool(unenforced(schema))
    for value in (*values, *NUMBERS):
        answer = [value, value] if nested else value
        matcher = GrammarMatcher(grammar)
        is_taken = matcher.accept_string(json.dumps(answer)) and matcher.is_completed()
        assert is_taken or value not in values, value
        assert not is_taken or has_names or validator.is_valid(answer), value


def test_what_is_no_integer_is_refused(compiler):
    schema = {"type": "integer", "multipleOf": 5, "minimum": -100, "maximum": 100_000}
    grammar = compiler.compile(Guide("json_schema", json.dumps(schema))).result().grammar
    for text in ("-0", "05", "5.0", "5e1", "", "-", '"5"', "100005"):
        matcher = GrammarMatcher(grammar)
        assert not (matcher.accept_string(text) and matcher.is_completed()), text


def test_a_range_without_a_multiple_is_refused(compiler):
    schema = {"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13}
    with pytest.raises(GuideError, match="no multiple"):
        compiler.compile(Guide("json_schema", json.dumps(schema))).result()


@pytest.mark.parametrize("name", ["qwen_xml_parameter", "json_schema"])
def test_numbers_are_written_without_a_mark_in_any_format(compiler, name):
    properties = {
        "a": {"const": 0.7},
        "b": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100_000},
    }
    schema = {"type": "object", "properties": properties, "required": ["a", "b"]}
    tag = {"type": "structural_tag", "format": {"type": name, "json_schema": schema}}
    grammar = compiler.compile(Guide("structural_tag", json.dumps(tag))).result().grammar
    for value, is_valid in (("35", True), ("36", False)):
        text = f'{{"a": 0.7, "b": {value}}}'
        if name == "qwen_xml_parameter":
            text = f"<parameter=a>0.7</parameter><parameter=b>{value}</parameter>"
        matcher = GrammarMatcher(grammar)
        assert (matcher.accept_string(text) and matcher.is_completed()) is is_valid


def test_an_automaton_has_as_many_rules_as_were_counted():
    for step in (1, 7, 60, 97, 1000, 1024, 86_400, 10**9):
        for most in (99, 10**5, 10**9 - 1, 10**15):
            keywords = {"multipleOf": step, "minimum": 0, "maximum": most}
            if (found := integers_of({"type": "integer", **keywords})) is not None:
                rules = rules_of(*found, name="a")
                tight = 2 * len(str(most)) ** 2
                assert len(rules.splitlines()) <= 512 + tight, found
