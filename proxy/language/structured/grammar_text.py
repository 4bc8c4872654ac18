"""The text of a grammar, in EBNF or in Lark's syntax -> EBNF."""

from __future__ import annotations

import re

from proxy.language.structured.lark import to_ebnf
from proxy.language.structured.lark_syntax import Untranslatable as Untranslatable

_LARK_LINE = re.compile(
    r"^[^\S\n]*(?:[?!]*\w+(?:\.-?\d+)?\s*:(?!:=)|%(?:import|ignore|declare|override|extend)\b)",
    re.MULTILINE,
)


def as_ebnf(text: str) -> str:
    """Raises Untranslatable: it is in Lark's syntax, and means what EBNF cannot say."""
    return to_ebnf(text) if "::=" not in text and _LARK_LINE.search(text) else text
