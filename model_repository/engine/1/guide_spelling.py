"""Guides, written so that xgrammar 0.2.8 holds what they say.

Its automaton of a `pattern`, and of a `Regex("…")` in EBNF, takes `a(xb+)?` for `a(xb*)?|ab*`, and
not so `a(xb+){0,1}`; and some of its formats let through what is none, such as the 31st of
February, or raw quotation marks. tokenizer/1/guide_spelling.py is a link to this file.
"""

from __future__ import annotations

import json
import re
from typing import Any

# An escape, a class of characters, or a group that may be left out.
OPTIONAL_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\)\?)", re.DOTALL)
# The same within a string of EBNF, where backslashes stand twice.
_ESCAPED = r"\\\\(?:\\.|[^\\])"
OPTIONAL_GROUP_IN_EBNF = re.compile(
    rf"{_ESCAPED}|\[(?:{_ESCAPED}|\\[^\\]|[^\]\\])*\]|(\)\\?\?)", re.DOTALL
)
EBNF_REGEX = re.compile(r'(?<=\bRegex\(")(?:[^"\\]|\\.)*', re.DOTALL)
VALUES = frozenset({"const", "enum", "default", "examples"})  # no schemas, whatever they look like
# Schemas by names of the caller's own.
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

_HOUR = "([01][0-9]|2[0-3])"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](\.[0-9]+){{0,1}}(Z|[+\-]{_HOUR}:[0-5][0-9])"
_POINTER = "(/([^~/]|~[01])*)*"
FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(0|[1-9][0-9]*)(#|{_POINTER})$",
}


def spelled(text: str) -> str:
    """The same schema, or structural tag, as JSON. Text that is no JSON comes back as it is."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = _spelled(given)
    return text if found == given else json.dumps(found)


def spelled_ebnf(text: str) -> str:
    """The same grammar."""
    return EBNF_REGEX.sub(lambda match: _whole_groups(OPTIONAL_GROUP_IN_EBNF, match[0]), text)


def _spelled(given: Any) -> Any:
    if isinstance(given, list):
        return [_spelled(one) for one in given]
    if not isinstance(given, dict):
        return given
    found = {key: _below(key, value) for key, value in given.items()}
    if isinstance(found.get("pattern"), str):
        found["pattern"] = _whole_groups(OPTIONAL_GROUP, found["pattern"])
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {
            _whole_groups(OPTIONAL_GROUP, name): value
            for name, value in found["patternProperties"].items()
        }
    if isinstance(found.get("format"), str) and found["format"] in FORMATS:
        found["pattern"] = FORMATS[found.pop("format")]
    return found


def _below(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, dict):
        return {name: _spelled(one) for name, one in value.items()}
    return value if key in VALUES else _spelled(value)


def _whole_groups(optional: re.Pattern[str], pattern: str) -> str:
    return optional.sub(lambda match: "){0,1}" if match[1] else match[0], pattern)
