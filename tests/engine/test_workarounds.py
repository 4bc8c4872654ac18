"""What xgrammar makes of patterns and formats: what a grammar lets end conforms."""

from __future__ import annotations

import json

import jsonschema_rs
import numpy as np
import pytest
from lark import Lark, UnexpectedInput
from xgrammar import GrammarMatcher

from grammars.workarounds import rewrite_ebnf, rewrite_schema
from guides.compiler import GuideCompiler
from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.language.structured.keywords import FORMATS
from proxy.language.structured.lark import to_ebnf
from tests.fixtures.guide_info import VOCAB_SIZE, walk

WALKS = 100
LENGTHS = {"email"}  # of its parts; and a walk finds no end of it
# As people write them: each has a group that may be left out.
PATTERNS = {
    r"^[0-9](\.[0-9]{1,2})?$": ("6.25", "68"),
    r"^(\d+(\.\d+)?|100)%$": ("1.5%", "1.%"),
    r"^-?P(\d+Y)?(\d+M)?(T(\d+H)?(\d+M)?)?$": ("P1YT2H", "P17"),
    r"^[a-z]{2,3}(-[A-Z]{4})?(-x(-[a-z]{1,8})+)?$": ("en-x-ab", "enab"),
    r"^a(?:xb+)?c$": ("axbbc", "abc"),
    r"^a(xb+)??$": ("axb", "ab"),
    r"^\(?a[)?](b+)?$": ("(a?b", "(ab"),
}
# Lark grammars, each with a text that it describes and one that it does not.
LARK = {
    'start: "ab"i~2': ("aBAb", "abb"),
    'start: ("a"+)? "b"': ("aab", "a"),
    r'start: "\d\\" "a".."c"': ("\\d\\b", "1\\b"),
    'start: A B\nA: "a"\nB: "b"\n%ignore " "': (" a  b ", "a-b"),
    "start: INT\n%import common (INT, DIGIT)": ("71", "x"),
    'start: X "."\n%import common.CNAME -> X': ("a1.", "1."),
    "start: ESCAPED_STRING\n%import common.ESCAPED_STRING": (r'"\"a\\"', '"a\\"'),
    "start: C_COMMENT\n%import common.C_COMMENT": ("/* a **/", "/* a *"),
    "start: SIGNED_NUMBER\n%import common.SIGNED_NUMBER": ("-1.5e+3", "1.5e"),
    'start: "a" WS "b"\n%import unicode.WS': ("a\xa0 b", "a-b"),
    '!?start.2: x -> y | \\\n  z // end\n\n    | "c"\nx: "a" # a\nz: "b"': ("b", "d"),
}


@pytest.fixture(scope="module")
def compiled(vocabulary):
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)

    def compiled(kind: str, guide):
        text = guide if isinstance(guide, str) else json.dumps(guide)
        return compiler.compile(Guide(kind, text)).result()

    yield compiled
    compiler.close()


def takes(grammar, said: str) -> bool:
    matcher = GrammarMatcher(grammar.grammar)
    return matcher.accept_string(said) and matcher.is_completed()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kind", ["json_schema", "structural_tag"])
def test_a_group_that_may_be_left_out_is_all_or_nothing(compiled, kind, pattern):
    guide = {"type": "string", "pattern": pattern}
    if kind == "structural_tag":
        content = {"type": "json_schema", "json_schema": guide}
        guide = {"type": "structural_tag", "format": content}
    good, bad = map(json.dumps, PATTERNS[pattern])
    assert takes(compiled(kind, guide), good)
    assert not takes(compiled(kind, guide), bad)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_so_it_is_in_a_regular_expression_of_a_lark_grammar(compiled, pattern):
    good, bad = PATTERNS[pattern]
    grammar = compiled("ebnf_grammar", to_ebnf(f"start: /{pattern}/"))
    assert takes(grammar, good)
    assert not takes(grammar, bad)


@pytest.mark.parametrize("text", LARK)
def test_a_lark_grammar_takes_what_lark_takes(compiled, text):
    good, bad = LARK[text]
    grammar, oracle = compiled("ebnf_grammar", to_ebnf(text)), Lark(text)
    assert takes(grammar, good)
    oracle.parse(good)
    assert not takes(grammar, bad)
    with pytest.raises(UnexpectedInput):
        oracle.parse(bad)


def test_other_texts_of_a_grammar_stay_as_they_are():
    kept = r'root ::= "(a)?" b? | Regex("[)?]\\(a\\)?(b)\\?") | "Regex(\"(a)?" | (b)?'
    assert rewrite_ebnf(kept) == kept
    given, expected = r'a ::= Regex("(\\))?(b)\?")', r'a ::= Regex("(\\)){0,1}(b){0,1}")'
    assert rewrite_ebnf(given) == expected


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "number"}, "-" + "3" * 25, "3" * 26),
        ({"type": "number"}, "0." + "3" * 24, "0." + "3" * 25),
        ({"type": "number"}, "-1.7976931348623157E+99", "1e100"),
        ({"type": "integer"}, "18446744073709551615", "3" * 26),
        ({"type": "integer", "minimum": 3}, "3" * 25, "3" * 26),
        ({"type": ["integer", "null"], "maximum": 0}, "-" + "3" * 25, "-" + "3" * 26),
        ({"type": "number", "exclusiveMinimum": 0.5}, "3" * 25 + ".5", "3" * 26),
        ({"type": "array"}, f"[{'3' * 25}]", f"[{'3' * 26}]"),
        # what a caller wrote itself stays as it is
        ({"type": "string", "pattern": "^[1-9][0-9]+$"}, f'"{"3" * 60}"', '"x"'),
        ({"enum": ["[1-9] [0-9]*"]}, '"[1-9] [0-9]*"', '"3"'),
    ],
)
@pytest.mark.parametrize("kind", ["json_schema", "structural_tag"])
def test_a_number_has_a_limited_length(compiled, kind, schema, good, bad):
    guide = schema
    if kind == "structural_tag":
        guide = {"type": kind, "format": {"type": "json_schema", "json_schema": schema}}
    assert takes(compiled(kind, guide), good)
    assert not takes(compiled(kind, guide), bad)


def test_a_callers_grammar_in_a_structural_tag_may_have_numbers_of_any_length(compiled):
    content = {"type": "grammar", "grammar": "root ::= [1-9] [0-9]*"}
    guide = {"type": "structural_tag", "format": content}
    assert takes(compiled("structural_tag", guide), "3" * 60)


def test_names_that_a_pattern_describes_are_held_to_it(compiled):
    schema = {"type": "object", "patternProperties": {"^a(xb+)?$": {"type": "integer"}}}
    assert takes(compiled("json_schema", schema), '{"axb": 1}')
    assert not takes(compiled("json_schema", schema), '{"ab": 1}')


@pytest.mark.parametrize("name", sorted(FORMATS - LENGTHS))
def test_every_text_of_a_format_is_one(compiled, vocabulary, name):
    schema = {"type": "string", "format": name}
    validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    grammar, mask = compiled("json_schema", schema), GuideMask(VOCAB_SIZE, threads=1)
    random = np.random.default_rng(5)
    texts = [walk(GuideState(grammar), mask, vocabulary, random) for _ in range(WALKS)]
    ended = [text.decode(errors="replace") for text in texts if text is not None]
    assert len(ended) > WALKS / 10
    assert [text for text in ended if not validator.is_valid(json.loads(text))] == []


@pytest.mark.parametrize(
    ("name", "said", "is_one"),
    [
        ("date", "2024-02-29", True),
        ("date", "2000-02-29", True),
        ("date", "1900-02-29", False),
        ("date", "2023-04-31", False),
        ("date", "2023-12-31", True),
        ("date-time", "2023-02-28T23:59:59.5+01:30", True),
        ("date-time", "2023-02-30T00:00:00Z", False),
        ("time", "24:00:00Z", False),
        ("ipv4", "192.168.0.255", True),
        ("ipv4", "10.0.0.01", False),
        ("json-pointer", "/a~1b/0", True),
        ("json-pointer", "", True),
        ("json-pointer", "/~2", False),
        ("relative-json-pointer", "0#", True),
        ("relative-json-pointer", "01", False),
    ],
)
def test_a_format_takes_what_is_one(compiled, name, said, is_one):
    grammar = compiled("json_schema", {"type": ["string", "null"], "format": name})
    assert takes(grammar, json.dumps(said)) is is_one


def test_a_property_may_have_the_name_of_a_keyword():
    schema = {"properties": {name: {"pattern": "^a(b+)?$"} for name in ("default", "enum", "a")}}
    assert rewrite_schema(json.dumps(schema)).count("{0,1}") == 3


def test_values_and_names_of_properties_stay_as_they_are():
    kept = {
        "properties": {"pattern": {"type": "string"}, "format": {"const": {"format": "date"}}},
        "enum": [{"pattern": "(a)?"}],
        "default": {"format": "ipv4"},
        "maximum": 1.0,
    }
    text = json.dumps(kept)
    assert rewrite_schema(text) is text
    assert rewrite_schema("no JSON") == "no JSON"
