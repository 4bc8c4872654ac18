"""Compiles a guide (kind and text) to xgrammar's CompiledGrammar, and makes its errors readable.

docs/guided_decoding.md lists the JSON schema keywords that xgrammar enforces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from grammars.workarounds import rewrite_ebnf, rewrite_schema

WHITESPACE_AT_MOST = 10  # between two JSON tokens; some models write as much as they may
REASON_AT_MOST = 200
ANY_JSON = '{"type": ["object", "array"]}'
# What xgrammar puts before its messages: a clock time with a source line, and the failed check.
SOURCE_LINE = re.compile(r"\[[\d:]+\] \S+:\d+: |Check failed: \(.*?\) is (?:true|false): ")


# xgrammar 0.2.8 allows raw control characters in strings of limited length; JSON does not.
LOOSE_CHARACTER, CHARACTER = r"[^\"\\\r\n]", r"[^\0-\x1f\"\\]"


def _json_schema(compiler: Any, text: str) -> Any:
    from xgrammar import Grammar

    grammar = Grammar.from_json_schema(text, max_whitespace_cnt=WHITESPACE_AT_MOST)
    return compiler.compile_grammar(_tightened(grammar) or grammar)


def _structural_tag(compiler: Any, text: str) -> Any:
    compiled = compiler.compile_structural_tag(text)
    tightened = _tightened(compiled.grammar)
    return compiled if tightened is None else compiler.compile_grammar(tightened)


def _tightened(grammar: Any) -> Any:
    """The grammar without raw control characters; None if it allows none."""
    from xgrammar import Grammar

    rules = str(grammar)
    if LOOSE_CHARACTER not in rules:
        return None
    return Grammar.from_ebnf(rules.replace(LOOSE_CHARACTER, CHARACTER))


KINDS: dict[str, Callable[[Any, str], Any]] = {
    "json": _json_schema,
    "json_schema": _json_schema,
    "regex": lambda compiler, text: compiler.compile_regex(text),
    "ebnf_grammar": lambda compiler, text: compiler.compile_grammar(text),
    "structural_tag": _structural_tag,
}


def compile_guide(compiler: Any, kind: str, text: str) -> Any:
    """xgrammar's CompiledGrammar; `kind` is a key of KINDS. Raises whatever xgrammar raises."""
    return KINDS[kind](compiler, rewrite(kind, text))


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
