"""Grammars of escaped texts: the escaped form of every text of the original, and no other."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.language.structured.escaped_grammar import IN_JSON, IN_MARKUP, Inexpressible
from proxy.language.structured.lark import Untranslatable, to_ebnf

CHARACTERS = 'ab1_- "\\\n\t\x00\x1f<>&;é😀`{}]^'
LITERALS = st.sampled_from([*'ab1 "<>&é😀`_-', r"\\", r"\n", r"\t", r"\x00", r"\u00e9", r"\]"])
CLASSES = st.sampled_from(
    [r"\d", r"\w", r"\S", ".", r"[^a]", r"[\s\S]", r'["\\a-c]', r"[^\n<]", r"[&-<]", r"[]a^-]"]
)
ATOMS = LITERALS | CLASSES
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+?", "?", "{2}", "{0,2}"])).map(
            lambda parts: f"({parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("escapes", [IN_JSON, IN_MARKUP], ids=["json", "markup"])
@given(pattern=PATTERNS, data=st.data())
def test_a_pattern_matches_the_escaped_form_of_the_same_texts(escapes, pattern, data):
    original = re.compile(pattern, re.ASCII)
    escaped = re.compile(escapes.pattern(pattern))
    text = data.draw(st.text(st.sampled_from(CHARACTERS), max_size=4) | st.from_regex(original))
    is_match = original.fullmatch(text) is not None
    assert (escaped.fullmatch(escapes.text(text)) is not None) is is_match
    if escapes.text(text) != text:
        assert escaped.fullmatch(text) is None


@pytest.mark.parametrize(
    ("pattern", "same"),
    [("^a|b$", "a|b"), ("(?P<x>a)", "(?:a)"), ("(?<x>a)*?", "(?:a)*"), (r"\u{61}\x{62}", "ab")],
)
def test_notations_of_other_dialects(pattern, same):
    assert re.sub(r"[][]", "", IN_JSON.pattern(pattern)) == same


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"a**", "a*+", "*a", "(|*)", "(", ")", "[a", r"[\]", "a{", "a{1000000}", "a{,3}", "x{y}"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?#a)", r"(a)\1", r"\ba", r"\p{L}", r"\A", r"\q"),
        *("a^b", "a$b", "(^a)", "[b-a]", r"[a-\d]", "[]", "\\", r"\ud800", r"\u{110000}", "(" * 65),
    ],
)
def test_what_is_not_regular_or_wrong_is_refused(pattern):
    with pytest.raises(Inexpressible):
        IN_JSON.pattern(pattern)


@pytest.mark.parametrize(
    ("expansions", "ebnf"),
    [
        (r'"\"a\\\n"', r'"\\\"a\\\\\\n"'),
        ('"é<&"', '"é<&"'),
        (r'"a\""i', r'(("A" | "a") ("\\\""))'),
        ('"a".."c"', 'Regex("[a-c]")'),
        ("/[a]b/", 'Regex("[a][b]")'),
        (r"/\"/", r'Regex("(?:\\\\[\"])")'),
    ],
)
def test_a_lark_grammar_in_json(expansions, ebnf):
    found = to_ebnf(f"start: {expansions}", IN_JSON).splitlines()[1].removeprefix("start ::= ")
    assert found.replace('("\\\\\\"")', '"\\\\\\""') == ebnf.replace('("\\\\\\"")', '"\\\\\\""')


def test_ignored_texts_and_libraries_are_escaped_too():
    found = to_ebnf("start: LF\n%import common.LF\n%ignore /<+/", IN_MARKUP)
    assert 'Regex("(?:&lt[;])+")' in found
    assert 'common.LF ::= Regex("[\\\\x0a]")' in found


@pytest.mark.parametrize("pattern", [r"\p{L}", "(?=a)b", "a**", '"b".."a"'])
def test_a_mistake_in_a_lark_grammar_has_its_place(pattern):
    written = pattern if pattern.startswith('"') else f"/{pattern}/"
    with pytest.raises(Untranslatable, match="line 1, column 8"):
        to_ebnf(f"start: {written}", IN_JSON)


@pytest.mark.parametrize(
    "pattern",
    ["[" * 16_000, "(" * 16_000, "a|" * 8_000, "$|" * 8_000, "[^a]" * 4_000, "\\" * 16_000],
)
def test_hostile_patterns_cost_little(pattern):
    start = time.thread_time()
    with suppress(Inexpressible):
        IN_JSON.pattern(pattern)
    assert time.thread_time() - start < 1.5
