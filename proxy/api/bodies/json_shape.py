"""What a JSON text will cost to parse, counted before it is parsed. Called by `body`.

Every count is a whole pass in C over the bytes: a regular expression's match for each of a million
strings would take a second and half a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_openai.proxy.api.bodies import json_depth

# A text within all of these takes less than 5 ms to parse and check, most of it for arrays and
# objects: pydantic needs 10 µs for a message or a tool.
CHEAP_BYTES = 256_000
CHEAP_ESCAPES = 10_000
CHEAP_QUOTES = 3_000
CHEAP_MARKS = 4_000  # commas and opening brackets; arguments of tool calls are JSON in a string
CHEAP_CONTAINERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """Limits of one text. strings: includes keys. values: list items and object members."""

    depth: int = 100
    containers: int = 25_000
    strings: int = 50_000
    values: int = 200_000


def is_cheap(data: bytes) -> bool:
    """Whether the text may be parsed on the event loop. Works for invalid JSON, too."""
    if len(data) > CHEAP_BYTES:
        return False
    openings = data.count(b"[") + data.count(b"{")
    if openings + data.count(b",") > CHEAP_MARKS or data.count(b'"') > CHEAP_QUOTES:
        return False
    if data.count(b"\\") > CHEAP_ESCAPES:
        return False
    if openings <= CHEAP_CONTAINERS:
        return True
    outside = json_depth.outside_strings(data)
    return outside.count(b"[") + outside.count(b"{") <= CHEAP_CONTAINERS


def fault(data: bytes, limits: JsonLimits) -> str | None:
    """What the text has too much of; None where it is within the limits.

    The result is meaningless for invalid JSON; the parser reports that.
    """
    outside = json_depth.outside_strings(data)
    containers = outside.count(b"[") + outside.count(b"{")
    if containers > limits.containers:
        return f"has {containers} arrays and objects, at most {limits.containers} are allowed"
    if (values := outside.count(b",") + containers) > limits.values:
        return f"has about {values} values, at most {limits.values} are allowed"
    # outside_strings leaves one mark for each string
    if (strings := outside.count(b'"')) > limits.strings:
        return f"has {strings} strings and keys, at most {limits.strings} are allowed"
    if json_depth.exceeds(data, limits.depth):
        return f"nests arrays and objects more than {limits.depth} deep"
    return None
