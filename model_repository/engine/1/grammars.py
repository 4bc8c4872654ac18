"""A guide, as kind and text -> xgrammar's compiled grammar; and its errors, made readable.

tokenizer/1/grammars.py is a link to this file: what the tokenizer's check lets through is what
the engine compiles. docs/guided_decoding.md tells which JSON schema keywords it enforces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from guide_spelling import spelled, spelled_ebnf

WHITESPACE_AT_MOST = 10  # between two JSON tokens; some models write all they may
REASON_AT_MOST = 200
ANY_JSON = '{"type": ["object", "array"]}'
PLACE = re.compile(r"\[[\d:]+\] \S+:\d+: |Check failed: \(.*?\) is (?:true|false): ")


# xgrammar 0.2.8 lets raw control characters into strings of limited length; JSON does not.
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
    """None where nothing is loose."""
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
    """xgrammar's CompiledGrammar. It raises whatever xgrammar raises; `kind` is one of KINDS."""
    return KINDS[kind](compiler, rewritten(kind, text))


def rewritten(kind: str, text: str) -> str:
    """What a compiler gets for the guide: TensorRT-LLM's, too, which is xgrammar as well."""
    match kind:
        case "json":
            return ANY_JSON
        case "json_schema" | "structural_tag":
            return spelled(text)
        case "ebnf_grammar":
            return spelled_ebnf(text)
    return text


def reason(error: BaseException) -> str:
    """What xgrammar says, without its clock, its source lines and its checks."""
    said = " ".join(PLACE.sub("", str(error)).split())
    if "std::bad_alloc" in said or isinstance(error, MemoryError):
        return "there is not enough memory to compile it"
    return said if len(said) <= REASON_AT_MOST else said[: REASON_AT_MOST - 1] + "…"
