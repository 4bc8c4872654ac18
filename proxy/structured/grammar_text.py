"""The text of a grammar, in EBNF or Lark's syntax -> EBNF."""

from __future__ import annotations

import re

_LARK_RULE = re.compile(
    r"^\s*[?!]*\w+(?:\.-?\d+)?\s*:(?!:=)|^\s*%(?:import|ignore|declare)\b", re.MULTILINE
)


class Untranslatable(ValueError):
    """EBNF has no words for it; the message says for what."""


def as_ebnf(text: str) -> str:
    """Raises Untranslatable: it is in Lark's syntax, and means what EBNF cannot say."""
    if "::=" in text or not _LARK_RULE.search(text):
        return text
    raise Untranslatable("not yet")
