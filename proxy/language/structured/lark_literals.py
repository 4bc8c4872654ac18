"""Strings, ranges and regular expressions of a Lark grammar -> EBNF. Called by `lark`."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from lark import GrammarError, Token
from lark.load_grammar import eval_escaping

from proxy.language.structured.lark_syntax import fault, shown

# Look-around, back references, groups with flags.
_BEYOND_REGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?!:)|\\[1-9bB])")
# A class that is not closed ends with the pattern: else each of its brackets would be tried.
_CLASS_OR_DOT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\.", re.DOTALL)


def string(literal: Token, library: str) -> str:
    """`"…"`, and `"…"i` for either case."""
    text = _text(literal, library)
    if not literal.endswith("i"):
        return json.dumps(text, ensure_ascii=False)
    return f"({' '.join(map(_either_case, text))})" if text else '""'


def character_range(first: Token, last: Token, library: str) -> str:
    """`"a".."z"`"""
    ends = [_text(end, library) for end in (first, last)]
    if any(len(end) != 1 for end in ends):
        raise fault("a range goes from one character to another", first, library)
    return f"[{_in_class(ends[0])}-{_in_class(ends[1])}]"


def regex(literal: Token, library: str) -> str:
    """`/…/flags`; Lark's dot is not a newline, unless the flag s is given."""
    pattern, flags = literal[1:].rsplit("/", 1)
    if set(flags) - set("su"):
        raise fault(f"the flags of {shown(literal)} are not supported", literal, library)
    if found := _BEYOND_REGULAR.search(pattern):
        raise fault(f"{found[0]!r} is not part of a regular language", literal, library)
    pattern = pattern.replace(r"\/", "/")
    if "s" not in flags:
        pattern = _CLASS_OR_DOT.sub(lambda m: r"[^\n]" if m[0] == "." else m[0], pattern)
    return f"Regex({json.dumps(pattern, ensure_ascii=False)})"


def _text(literal: Token, library: str) -> str:
    try:
        text: str = eval_escaping(literal.removesuffix("i")[1:-1])  # type: ignore[no-untyped-call]
    except (GrammarError, ValueError):
        raise fault(f"{shown(literal)} is not a string", literal, library) from None
    return text.replace("\\\\", "\\")


@lru_cache(maxsize=256)
def _either_case(char: str) -> str:
    cases = {char.lower(), char.upper()}
    if len(cases) == 1:
        return json.dumps(char, ensure_ascii=False)
    return f"({' | '.join(json.dumps(case, ensure_ascii=False) for case in sorted(cases))})"


def _in_class(char: str) -> str:
    return f"\\{char}" if char in "\\]^-" else json.dumps(char, ensure_ascii=False)[1:-1]
