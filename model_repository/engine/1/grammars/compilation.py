"""Compiles a guide (kind and text) to xgrammar's CompiledGrammar, and makes its errors readable.

docs/guided_decoding.md lists the JSON schema keywords that xgrammar enforces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from grammars.workarounds import mark_numbers, rewrite_ebnf, rewrite_schema, unmark_numbers

WHITESPACE_AT_MOST = 10  # between two JSON tokens; some models write as much as they may
REASON_AT_MOST = 200
ANY_JSON = '{"type": ["object", "array"]}'
# What xgrammar puts before its messages: a clock time with a source line, and the failed check.
SOURCE_LINE = re.compile(r"\[[\d:]+\] \S+:\d+: |Check failed: \(.*?\) is (?:true|false): ")


# xgrammar allows raw control characters in strings of limited length, which JSON does not, and half
# of a surrogate pair in all strings, which is no text.
_HEX = "[A-Fa-f0-9]"
CHARACTERS = (
    (r"[^\"\\\r\n]", r"[^\0-\x1f\"\\]"),
    (r"[^\0-\x1f", r"[^\0-\x1f\ud800-\udfff"),
    (
        f'("u" {_HEX} {_HEX} {_HEX} {_HEX})',
        f'("u" [0-9A-CEFa-cef] {_HEX} {_HEX} {_HEX}) | ("u" [Dd] [0-7] {_HEX} {_HEX}) | '
        f'("u" [Dd] [89ABab] {_HEX} {_HEX} "\\\\u" [Dd] [C-Fc-f] {_HEX} {_HEX})',
    ),
)
# In a further property's name, an escape would be another spelling of a listed one.
NAME_ESCAPE = re.compile(
    r'^(\S+_addl_key_\d+ ::= .*) \| \("\\\\" basic_escape basic_string_sub\)', re.MULTILINE
)
# As xgrammar writes a character of a text. It would read further digits behind it as part of it.
SHORT_ESCAPE = re.compile(r"(\\+)x([7-9a-f][0-9a-f])")
# Some models write digits for as long as they may. A caller's numbers have up to 17 significant
# digits, or the 20 of a 64-bit integer; with zeros before them a fraction has some more. A float
# holds exponents up to 308, and readers of JSON refuse what it does not hold.
DIGITS_AT_MOST, EXPONENT_AT_MOST = 24, 2
DIGIT_RULE = re.compile(r"^(\S+) ::= \(\(\[0-9\]\)\)$", re.MULTILINE)
# Repeated digits, as xgrammar writes them for numbers; and texts and classes, to skip them.
REPEATS = re.compile(
    r"(?P<digits>\[1-9\] \[0-9\])\*"
    r"|(?P<exponent>\[eE\] \S+ )?(?<![\w.-])(?P<rule>[\w.-]+)\{(?P<least>\d+), -1\}"
    r'|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]'
)
# In a structural tag: a caller's own rules cannot be told from those of its JSON schemas.
GRAMMAR_FORMAT = re.compile(r'"type":\s*"grammar"')


def _json_schema(text: str) -> Any:
    from xgrammar import Grammar

    text, mark = mark_numbers(text)
    grammar = Grammar.from_json_schema(text, max_whitespace_cnt=WHITESPACE_AT_MOST)
    return _tightened(grammar, mark)


def _structural_tag(text: str) -> Any:
    from xgrammar import Grammar

    is_callers = GRAMMAR_FORMAT.search(text) is not None
    text, mark = mark_numbers(text)
    return _tightened(Grammar.from_structural_tag(text), mark, bounds_numbers=not is_callers)


def _tightened(grammar: Any, mark: str, *, bounds_numbers: bool = True) -> Any:
    """The grammar with strings that are text, and with numbers of limited length."""
    from xgrammar import Grammar

    given = str(grammar)
    rules = SHORT_ESCAPE.sub(_long_escape, unmark_numbers(given, mark))
    rules = NAME_ESCAPE.sub(r"\1", rules)
    for loose, tight in CHARACTERS:
        rules = rules.replace(loose, tight)
    if bounds_numbers:
        rules = _bounded_numbers(rules)
    return grammar if rules == given else Grammar.from_ebnf(rules)


def _long_escape(found: re.Match[str]) -> str:
    return f"{found[1]}u00{found[2]}" if len(found[1]) % 2 else found[0]


def _bounded_numbers(rules: str) -> str:
    digits = set(DIGIT_RULE.findall(rules))

    def bounded(found: re.Match[str]) -> str:
        if found["digits"]:
            return f"{found['digits']}{{0, {DIGITS_AT_MOST}}}"
        if found["rule"] not in digits:
            return found[0]
        most = EXPONENT_AT_MOST if found["exponent"] else DIGITS_AT_MOST
        return found[0].replace("-1}", f"{max(most, int(found['least']))}}}")

    return REPEATS.sub(bounded, rules)


KINDS: dict[str, Callable[[Any, str], Any]] = {
    "json": lambda compiler, text: compiler.compile_grammar(_json_schema(text)),
    "json_schema": lambda compiler, text: compiler.compile_grammar(_json_schema(text)),
    "regex": lambda compiler, text: compiler.compile_regex(text),
    "ebnf_grammar": lambda compiler, text: compiler.compile_grammar(text),
    "structural_tag": lambda compiler, text: compiler.compile_grammar(_structural_tag(text)),
}


def compile_guide(compiler: Any, kind: str, text: str) -> Any:
    """xgrammar's CompiledGrammar; `kind` is a key of KINDS. Raises whatever xgrammar raises."""
    return KINDS[kind](compiler, rewrite(kind, text))


def as_ebnf(kind: str, text: str) -> str:
    """The guide as a grammar, for an engine that compiles it itself. Raises as compile_guide."""
    from xgrammar import Grammar

    given = rewrite(kind, text)
    match kind:
        case "json" | "json_schema":
            return str(_json_schema(given))
        case "structural_tag":
            return str(_structural_tag(given))
        case "regex":
            return str(Grammar.from_regex(given))
    return given


def rewrite(kind: str, text: str) -> str:
    """The guide's text as a compiler should get it. TensorRT-LLM's compiler is xgrammar, too."""
    match kind:
        case "json":
            return ANY_JSON
        case "json_schema" | "structural_tag":
            return rewrite_schema(text)
        case "ebnf_grammar":
            return rewrite_ebnf(text)
    return text


def reason(error: BaseException) -> str:
    """xgrammar's message without its clock times, source lines and checks, cut to a line."""
    message = " ".join(SOURCE_LINE.sub("", str(error)).split())
    if "std::bad_alloc" in message or isinstance(error, MemoryError):
        return "there is not enough memory to compile it"
    return message if len(message) <= REASON_AT_MOST else message[: REASON_AT_MOST - 1] + "…"
