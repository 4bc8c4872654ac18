"""Rewrites guides so that xgrammar 0.2.9 enforces what they say.

Its automaton for a `pattern`, and for a `Regex("…")` in EBNF, reads `a(xb+)?` as `a(xb*)?|ab*`, but
reads `a(xb+){0,1}` correctly. And some of its formats accept invalid values, for example the 31st
of February, or raw quotation marks.
"""

from __future__ import annotations

import json
import re
from typing import Any

from grammars.integers import BOUNDS, integers_of, rules_of, types_of, whole_bounds

# An escape, a character class, or the end of an optional group.
OPTIONAL_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\)\?)", re.DOTALL)
# The same in an EBNF string, where each backslash is written twice.
_ESCAPED = r"\\\\(?:\\.|[^\\])"
OPTIONAL_GROUP_IN_EBNF = re.compile(
    rf"{_ESCAPED}|\[(?:{_ESCAPED}|\\[^\\]|[^\]\\])*\]|(\)\\?\?)", re.DOTALL
)
EBNF_REGEX = re.compile(r'(?<=\bRegex\(")(?:[^"\\]|\\.)*', re.DOTALL)
_NUMBERS = re.compile(r'[0-9]{19}|[0-9][.eE]|"multipleOf"')
# Keywords whose values are data, not schemas.
VALUES = frozenset({"const", "enum", "default", "examples"})
# Keywords that map names of the caller's own to schemas.
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

_HOUR = "([01][0-9]|2[0-3])"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](\.[0-9]+){{0,1}}(Z|[+\-]{_HOUR}:[0-5][0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}"
_ADDRESS = "|".join(
    [
        f"({_GROUP}:){{7}}{_GROUP}",
        *(f"(({_GROUP}:){{{count}}}|:)(:{_GROUP}){{1,{7 - count}}}" for count in range(1, 7)),
    ]
)
_POINTER = "(/([^~/]|~[01])*)*"
FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "ipv6": f"^({_ADDRESS}|({_GROUP}:){{1,7}}:|::)$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(0|[1-9][0-9]*)(#|{_POINTER})$",
}


def rewrite_schema(text: str) -> str:
    """An equivalent JSON schema or structural tag. Returns invalid JSON unchanged."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    rewritten = _rewritten(given)
    return text if rewritten == given else json.dumps(rewritten)


def mark_numbers(text: str) -> tuple[str, str]:
    """The schema, or tag, with strings for listed floats, long integers and `grammars.integers`.

    xgrammar writes integers beyond 64 bits as floats and, before 0.2.9, 0.7 as 0.69999999999999996.
    Returns also the mark before their digits, "" for none.
    """
    if not _NUMBERS.search(text):
        return text, ""
    given, mark = json.loads(text), "#"
    written = json.dumps(given)
    while mark in written:
        mark += "#"
    return json.dumps(_with_marks(given, mark)), mark


def unmark_numbers(rules: str, mark: str) -> str:
    """The grammar of such a schema with the numbers themselves."""
    if not mark:
        return rules
    name = "multiple"
    while name in rules:
        name += "_"
    names: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        if ":" not in found[1]:
            return found[1]
        return f'" {names.setdefault(found[1], f"{name}{len(names)}")} "'

    # strings of Qwen's XML have no quotation marks
    rules = re.sub(rf'(?:\\")?{mark}(-?[0-9][0-9.e+:-]*)(?:\\")?', number, rules)
    more = [rules_of(*map(int, one.split(":")), name=name) for one, name in names.items()]
    return "\n".join([rules, *more])


def _with_marks(given: Any, mark: str, *, is_value: bool = False, is_named: bool = False) -> Any:
    """is_value: a schema lists it. is_named: its keys are names of the caller's own."""
    if isinstance(given, list):
        return [_with_marks(one, mark, is_value=is_value) for one in given]
    if isinstance(given, dict):
        is_schema = not (is_value or is_named)
        if is_schema and (found := integers_of(given)) is not None:
            ways: list[Any] = [{"const": mark + ":".join(map(str, found))}]
            if others := sorted(types_of(given) - {"integer"}):
                ways.append({**given, "type": others})
            return {**given, "anyOf": ways}
        return {
            key: _with_marks(
                one,
                mark,
                is_value=is_value or (is_schema and key in ("const", "enum")),
                is_named=is_schema and key in NAMED,
            )
            for key, one in given.items()
        }
    is_long = isinstance(given, int) and not -(2**63) <= given < 2**63
    return f"{mark}{given}" if is_value and (is_long or isinstance(given, float)) else given


def rewrite_ebnf(text: str) -> str:
    """An equivalent grammar."""
    return EBNF_REGEX.sub(lambda match: _count_groups(OPTIONAL_GROUP_IN_EBNF, match[0]), text)


def _rewritten(given: Any) -> Any:
    if isinstance(given, list):
        return [_rewritten(one) for one in given]
    if not isinstance(given, dict):
        return given
    schema = {key: _rewritten_value(key, value) for key, value in given.items()}
    if isinstance(schema.get("pattern"), str):
        schema["pattern"] = _count_groups(OPTIONAL_GROUP, schema["pattern"])
    if isinstance(schema.get("patternProperties"), dict):
        schema["patternProperties"] = {
            _count_groups(OPTIONAL_GROUP, name): value
            for name, value in schema["patternProperties"].items()
        }
    if isinstance(schema.get("format"), str) and schema["format"] in FORMATS:
        schema["pattern"] = FORMATS[schema.pop("format")]
    types = types_of(schema)
    if {"integer", "number"} <= types:
        schema["type"] = sorted(types - {"integer"})
    elif "integer" in types and (bounds := whole_bounds(schema)):
        schema = {name: value for name, value in schema.items() if name not in BOUNDS} | bounds
    return schema


def _rewritten_value(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, dict):
        return {name: _rewritten(one) for name, one in value.items()}
    return value if key in VALUES else _rewritten(value)


def _count_groups(optional: re.Pattern[str], pattern: str) -> str:
    """Writes each optional group `(…)?` as `(…){0,1}`."""
    return optional.sub(lambda match: "){0,1}" if match[1] else match[0], pattern)
