"""Lark grammars as EBNF. What the EBNF means is tried with xgrammar in tests/models."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.language.structured.lark import Untranslatable, as_ebnf


def rules(text: str) -> dict[str, str]:
    return dict(line.split(" ::= ", 1) for line in as_ebnf(text).strip().split("\n"))


@pytest.mark.parametrize(
    "text",
    ['root ::= "a"', 'root::="a" b\nb ::= [a-z]', "not a grammar at all", 'x ::= "start: y"'],
)
def test_what_is_not_larks_stays_as_it_is(text):
    assert as_ebnf(text) == text


@pytest.mark.parametrize(
    ("expansions", "ebnf"),
    [
        ('"a" "b"', '"a" "b"'),
        ('"a" | "b" |', '"a" | "b" | ""'),
        ('("a" "b")*', '("a" "b")*'),
        ('["a"] "b"', '(("a")?) "b"'),
        ('"a"~2 "b"~1..3', '"a"{2,2} "b"{1,3}'),
        ('"ab"i', '(("A" | "a") ("B" | "b"))'),
        ('"ab"i*', '(("A" | "a") ("B" | "b"))*'),
        ('("a"+)?', '("a"+)?'),
        ('"a".."f"', "[a-f]"),
        (r'"\"" "\n"', r'"\"" "\n"'),
        (r'"\d\\\x41"', r'"\\d\\A"'),
        ('"a" -> name', '"a"'),
        ("/[0-9]+\\//", 'Regex("[0-9]+/")'),
        ("/a.b/", 'Regex("a[^\\\\n]b")'),
        ("/a.[.]/s", 'Regex("a.[.]")'),
    ],
)
def test_each_piece_of_the_language(expansions, ebnf):
    assert rules(f"start: {expansions}") == {"root": "start", "start": ebnf}


def test_rules_go_on_over_lines_and_lose_what_only_shapes_trees():
    text = '// comment\n?start.2: a\n    | b -> other\n!a: "x"  // too\nb: "y"\nunused: "z"'
    assert rules(text) == {"root": "start", "start": "a | b", "a": '"x"', "b": '"y"'}


def test_ignored_terminals_may_stand_around_those_of_rules_but_not_within_terminals():
    found = rules('start: A "!"\nA: B B\nB: "b"\n%ignore " "\n%ignore /#/')
    assert found["root"] == "lark_ignored start"
    assert found["lark_ignored"] == '(" " | Regex("#"))*'
    assert found["start"] == '(A lark_ignored) ("!" lark_ignored)'
    assert found["A"] == "B B"


@pytest.mark.parametrize(
    "line", ["%import common.INT", "%import common (INT, WS)", "%import common.DIGIT -> INT"]
)
def test_terminals_of_the_common_library_are_there(line):
    assert "DIGIT" in str(rules(f"start: INT\n{line}"))


def test_a_rule_of_the_name_root_is_not_the_root():
    found = rules('start: root\nroot: "a"')
    assert found == {"root": "start", "start": "lark_root", "lark_root": '"a"'}


def test_names_of_a_library_do_not_meet_those_of_the_grammar():
    found = rules('start: X DIGIT\nDIGIT: "d"\n%import common.INT -> X')
    assert found["start"] == "common.INT DIGIT"
    assert (found["DIGIT"], found["common.INT"]) == ('"d"', "common.DIGIT+")


@pytest.mark.parametrize("name", ["ESCAPED_STRING", "C_COMMENT"])
def test_lazy_terminals_of_the_common_library_are_regular_here(name):
    assert "?<" not in str(rules(f"start: {name}\n%import common.{name}"))


@pytest.mark.parametrize("name", ["root", "lark_root", "lark_ignored"])
def test_no_name_is_taken_for_one_of_ours(name):
    found = rules(f'start: {name}\n{name}: "a"\n%ignore "b"')
    assert found[found["start"]] == '("a" lark_ignored)'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('begin: "a"', "not have a rule 'start'"),
        ("start: nobody", "line 1, column 8: 'nobody' is not defined"),
        ('start: "a" X\n%declare X', "%override and %declare are not supported"),
        ('start: "a"\n%import mine.NAME', "line 2, column 9: only common, unicode can"),
        ('start: "a"\n%import .common.INT', "only common, unicode can"),
        ("start: S\n%import common._STRING_ESC_INNER -> S", "common.lark, line [0-9]+, .* regular"),
        ("start: X\n%import common.NOTHING", "common does not define 'NOTHING'"),
        ("start: /(?=a)b/", "not part of a regular language"),
        (r"start: /(a)\1/", "not part of a regular language"),
        ("start: /a/i", "flags"),
        ('start: f{"a"}\nf: "a"', "line 1, column 8: templates are not supported"),
        ("start: f\nf{x}: x", "line 2, column 1: templates are not supported"),
        ('start: A\nA: b\nb: "b"', "cannot contain the rule 'b'"),
        ('start: "a"\nstart: "b"', "line 2, column 1: 'start' is defined twice"),
        ('start: "a"\n%override b: "b"', "%override and %declare are not supported"),
        ('start: "a"\n%extend start: "b"', "is not part of Lark's syntax"),
        ('start: "a"~3..2', "'~3..2' is not a number of repetitions"),
        (f'start: "a"~{"9" * 5_000}', "not a number of repetitions"),
        (r'start: "\x4"', "is not a string"),
        ('start: "a" "b', "line 1, column 12: '\"b' is not part"),
        ('start: "' + "\\\\" * 60, "is not part of Lark's syntax"),
        ('start: ("a"', "ends too early"),
        ('start: "a" )', "column 12: '\\)' may not stand here"),
        ('start: "a"~x', "'x' is not a number"),
        ('start: "ab".."c"', "one character"),
        (
            "start: " + "(" * 100 + '"a"' + ")" * 100,
            "line 1, column 72: it is nested more than 64 levels",
        ),
        ('start: "a" ;', "line 1, column 12: ';' is not part of Lark's syntax"),
        ("start: " + '"a" ' * 30_000, "20000 tokens"),
    ],
)
def test_what_has_no_words_in_ebnf_is_refused_with_the_reason(text, said):
    with pytest.raises(Untranslatable, match=said):
        as_ebnf(text)


PIECES = [
    *("\n", " ", "\r\n", "\t", "\x00", "f{x}: x\n", "A: a\n", 'a: "b"\n', "%import ", "%extend "),
    *("start", "a", "A", "x", ":", "|", "(", ")", "[", "]"),
    *("{", "}", ",", "..", "~", "->", "*", "?", "+", "!"),
    *(".1", "2", "-3", '"a"', '"b"i', '"', '"\\x"', 'f{"a"}', "\\", "/"),
    *("/[a-z]+/", "/./s", "#", "//", "%ignore", "%declare", "%override", "common", ".INT", "."),
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_a_text_is_translated_or_refused(text):
    with suppress(Untranslatable):
        as_ebnf(f"start: {text}")
