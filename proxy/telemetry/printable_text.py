"""Texts of callers in a line of the log: one line stays one line, no terminal obeys them, and they
show no key.
"""

from __future__ import annotations

import re

# A key (access.authentication.api_key), also a part of one, and keys of other APIs; a token.
_KEY = re.compile(r"(?<![A-Za-z0-9])(sk-(?:[A-Za-z0-9]{4,32}-)?)[A-Za-z0-9_-]{16,}")
_TOKEN = re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
HIDDEN = "…"


def redacted(text: str) -> str:
    """The text without what has the form of an API key or a token; a key's public id stays."""
    if "sk-" in text:
        text = _KEY.sub(rf"\1{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, text) if "eyJ" in text else text


def printable(text: str, keeps: str = "") -> str:
    """The text with its control characters, line ends and lone surrogates as escapes.

    keeps: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keeps else ascii(each)[1:-1] for each in text
    )
