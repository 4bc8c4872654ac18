"""Lark grammars as EBNF. What the EBNF means is tried with xgrammar in tests/models."""

from __future__ import annotations

import pytest

from triton_openai.proxy.structured.grammar_text import Untranslatable, as_ebnf


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
        ('"ab"i', '("A" | "a") ("B" | "b")'),
        ('"a".."f"', "[a-f]"),
        (r'"\"" "\n"', r'"\"" "\n"'),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('begin: "a"', "no rule 'start'"),
        ("start: nobody", "'nobody' is not defined"),
        ('start: "a"\n%declare X', "%declare"),
        ('start: "a"\n%import python.NAME', "only 'common'"),
        ("start: X\n%import common.NOTHING", "no such terminal"),
        ("start: /(?=a)b/", "no regular language"),
        (r"start: /(a)\1/", "no regular language"),
        ("start: /a/i", "flags"),
        ('start: f{"a"}\nf{x}: x', "defines no plain rule"),
        ('start: ("a"', "ends too early"),
        ('start: "a" )', "nothing may follow"),
        ('start: "a"~x', "no number"),
        ('start: "ab".."c"', "one character"),
        ("start: " + "(" * 100 + '"a"' + ")" * 100, "64 levels"),
        ('start: "a" ;', "no part of Lark's syntax"),
        ("start: " + '"a" ' * 30_000, "20000 tokens"),
    ],
)
def test_what_has_no_words_in_ebnf_is_refused_with_the_reason(text, said):
    with pytest.raises(Untranslatable, match=said):
        as_ebnf(text)
