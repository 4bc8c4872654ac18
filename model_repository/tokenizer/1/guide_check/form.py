"""What is wrong with a guide that needs no compiler to see it: size, JSON, unsupported escapes."""

from __future__ import annotations

import json
import re

ESCAPED_LETTER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|([A-Za-z])|.)", re.DOTALL)
# Letters that xgrammar knows after a backslash, or refuses itself. It reads any other letter as
# the letter itself.
KNOWN_ESCAPES = frozenset("dDwWsSnrtfvaecubBpP")


def form_error(kind: str, text: str, *, most_bytes: int) -> str | None:
    """The reason why the guide cannot be used; None if it may be compiled."""
    if kind == "json":
        return None
    if not text:
        return "it is empty"
    if len(text.encode()) > most_bytes:
        return f"it has more than {most_bytes} bytes"
    if kind == "regex":
        return _unknown_escape(text)
    if kind == "structural_tag":
        return _not_a_schema(text) or _unknown_escape_in_tag(text)
    return _not_a_schema(text) if kind == "json_schema" else None


def _unknown_escape(pattern: str) -> str | None:
    r"""Such as `\A`, `\Z`, `\h`, `\x{41}`: the answer would contain the letter."""
    for letter in filter(None, ESCAPED_LETTER.findall(pattern)):
        if letter not in KNOWN_ESCAPES:
            return f"the escape \\{letter} is not supported; the whole answer has to match"
    return None


def _unknown_escape_in_tag(tag: str) -> str | None:
    """Checks the regular expressions in a structural tag."""
    level = [json.loads(tag)] if '"regex"' in tag else []
    while level:
        one = level.pop()
        if isinstance(one, list):
            level += one
        elif isinstance(one, dict):
            level += one.values()
            if one.get("type") == "regex" and (reason := _unknown_escape(str(one.get("pattern")))):
                return reason
    return None


def _not_a_schema(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return f"it is not JSON: {error}"
    return None if isinstance(schema, (dict, bool)) else "it is neither an object nor a boolean"
