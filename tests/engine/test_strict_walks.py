"""Strict means valid: random texts under the guides of random schemas conform to them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from xgrammar import GrammarMatcher

from guides.compiler import GuideCompiler, GuideError
from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.domain.errors import RequestError
from proxy.language.structured.checks import schema_violation
from proxy.language.structured.keywords import unenforced
from proxy.language.structured.schema import SchemaLimits, checked
from proxy.language.structured.structural_tags import json_format
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from tests.engine.test_guided_values import MarkVocabulary, guide_of
from tests.fixtures.drawn_schemas import arguments, schemas
from tests.fixtures.examples import examples
from tests.fixtures.guide_info import VOCAB_SIZE, walk
from tests.fixtures.tool_calls import read
from tests.unit.language.syntax.syntaxes import SYNTAXES

WALKS = 6
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def answers(compiler, vocabulary, guide: Guide, seed: int) -> list[str]:
    """Random texts that the guide lets end; not every walk comes to an end in time."""
    compiled = compiler.compile(guide).result()
    random, mask = np.random.default_rng(seed), GuideMask(VOCAB_SIZE, threads=1)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    return [text.decode() for text in walks if text is not None]


def assert_valid(compiler, vocabulary, schema, seed: int = 0) -> None:
    text = checked(schema, "schema", SchemaLimits())
    for answer in answers(compiler, vocabulary, Guide("json_schema", text), seed):
        assert schema_violation(schema, answer) is None, answer


@settings(max_examples=examples(700), suppress_health_check=SLOW)
@given(schema=schemas(), seed=st.integers(0, 99))
def test_what_is_not_named_is_held(compiler, vocabulary, schema, seed):
    assume(not unenforced(schema))
    try:
        assert_valid(compiler, vocabulary, schema, seed)
    except (RequestError, GuideError):
        reject()


# Schemas whose walks once ended with an invalid answer.
FOUND = [
    {"type": "number"},
    {"type": "string", "maxLength": 9},
    {"enum": ["ø9", "ßa"]},
    {"enum": [2**64 - 1, -(2**63) - 1, {"a": [10**24]}]},
    {"const": [0.7, 1e-7]},
    {"type": "array", "items": {"type": "number"}, "minItems": 2},
    {"type": "string", "format": "ipv6"},
    {
        "type": "object",
        "properties": {"a": {"type": "null"}, "ab": {"type": "null"}},
        "additionalProperties": {"type": "integer"},
    },
]


@pytest.mark.parametrize("schema", FOUND, ids=json.dumps)
def test_a_found_schema_is_held(compiler, vocabulary, schema):
    assert unenforced(schema) == ()
    for seed in range(4):
        assert_valid(compiler, vocabulary, schema, seed)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "number"}, "1.5e99", "378E480"),
        ({"const": 0.7}, "0.7", "0.69999999999999996"),
        ({"enum": [2**64 - 1]}, "18446744073709551615", "1.8446744073709552e+19"),
        ({"enum": ["#18446744073709551616", 2**64]}, "18446744073709551616", '"##1"'),
        ({"enum": ["#5", 2**64]}, '"#5"', "5"),
        (
            {"const": {"properties": {"enum": 2**64}}},
            '{"properties":{"enum":18446744073709551616}}',
            "1",
        ),
        (
            {"properties": {"enum": {"const": 2**64}}},
            '{"enum": 18446744073709551616}',
            '{"enum": 1}',
        ),
        ({"type": "string"}, r'"\ud83d\uDE00"', r'"\ud83d"'),
        ({"type": "string"}, r'"\ue000"', r'"\udc00\ud83d"'),
        ({"enum": ["é9"]}, '"é9"', '"\u0e99"'),
        ({"enum": ["\\é9"]}, r'"\\é9"', '"é9"'),
        ({"enum": [r"\xe9"]}, r'"\\xe9"', '"é"'),
        (
            {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
            '{"ab": 1}',
            r'{"\u0061": 1}',
        ),
    ],
)
@pytest.mark.parametrize("kind", ["json_schema", "structural_tag"])
def test_a_text_is_valid_or_refused(compiler, kind, schema, good, bad):
    guide = json.dumps(schema)
    if kind == "structural_tag":
        guide = json.dumps({"type": kind, "format": json_format(schema)})
    grammar = compiler.compile(Guide(kind, guide)).result().grammar
    for text, is_valid in ((good, True), (bad, False)):
        matcher = GrammarMatcher(grammar)
        assert (matcher.accept_string(text) and matcher.is_completed()) is is_valid, text


@pytest.mark.parametrize("limited", [{}, {"maxLength": 4}], ids=["free", "limited"])
@pytest.mark.parametrize(
    "raw",
    [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\xa2", b"\xe0\x9f\xbf", b"\xf4\x90\x80\x80", b"\n"],
)
def test_a_string_is_text(tmp_path, raw, limited):
    vocabulary = MarkVocabulary(tmp_path, [])
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=1_000_000, threads=1)
    guide = Guide("json_schema", json.dumps({"type": "string", **limited}))
    matcher = GrammarMatcher(compiler.compile(guide).result().grammar)
    compiler.close()
    assert not all(map(matcher.accept_token, b'"' + raw + b'"'))


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_under_a_familys_guide_are_held(compiler, vocabulary, family):
    @settings(max_examples=examples(20), suppress_health_check=SLOW)
    @given(schema=arguments(), seed=st.integers(0, 99))
    def holds(schema, seed):
        assume(not unenforced(schema))
        try:
            checked(schema, "schema", SchemaLimits())
            guides = guide_of(family, schema)
            guide = Guide(guides.answer.kind.value, guides.answer.text)
            texts = answers(compiler, vocabulary, guide, seed)
        except (RequestError, GuideError):
            reject()
        assume("f" not in guides.unheld)  # checked
        for text in texts:
            said, [(_, written)] = read(guides.family, text, {"f": schema})
            assert said.strip() == "", text
            assert schema_violation(schema, written) is None, text

    holds()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_format_is_held_or_the_call_is_checked(compiler, family):
    date = {"type": "string", "format": "date"}
    schema = {"type": "object", "properties": {"a": date}, "required": ["a"]}
    guides = guide_of(family, schema)
    guide = Guide(guides.answer.kind.value, guides.answer.text)
    written = SYNTAXES[guides.family]([{"name": "f", "arguments": {"a": "2023-02-30"}}])
    matcher = GrammarMatcher(compiler.compile(guide).result().grammar)
    assert not (matcher.accept_string(written) and matcher.is_completed()) or guides.unheld
