"""Estimates from a JSON text's structure what it costs to parse, before it is parsed.

Called by `body_reader`. Every count is one pass in C over the bytes; a regular expression that
matches each of a million strings would take a second and half a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

# A text within all of these limits takes less than 5 ms to parse and check, most of it for arrays
# and objects: pydantic needs 10 µs for a message or a tool.
CHEAP_BYTES = 256_000
CHEAP_ESCAPES = 10_000
CHEAP_QUOTES = 3_000
CHEAP_MARKS = 4_000  # commas and opening brackets, also inside strings: call arguments are JSON
CHEAP_CONTAINERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """Limits of one text. strings: with keys. values: array items and object members."""

    depth: int = 100
    containers: int = 25_000
    strings: int = 50_000
    values: int = 200_000


def is_cheap(data: bytes) -> bool:
    """Whether the text is cheap enough for the event loop. Invalid JSON is judged as well."""
    if len(data) <= CHEAP_CONTAINERS:
        return True
    if len(data) > CHEAP_BYTES:
        return False
    openings = data.count(b"[") + data.count(b"{")
    if openings + data.count(b",") > CHEAP_MARKS or data.count(b'"') > CHEAP_QUOTES:
        return False
    if data.count(b"\\") > CHEAP_ESCAPES:
        return False
    if openings <= CHEAP_CONTAINERS:
        return True
    outside = outside_strings(data)
    return outside.count(b"[") + outside.count(b"{") <= CHEAP_CONTAINERS


def is_surely_within(data: bytes, limits: JsonLimits) -> bool:
    """Whether the text has too few marks to be over a limit, but for its depth."""
    openings = data.count(b"[") + data.count(b"{")
    has_room = openings <= limits.containers and openings + data.count(b",") <= limits.values
    return has_room and data.count(b'"') <= 2 * limits.strings


def fault(data: bytes, limits: JsonLimits) -> str | None:
    """Why the text is over the limits, as the end of a sentence; None if it is within them.

    The result is meaningless for invalid JSON; the parser reports that.
    """
    openings = data.count(b"[") + data.count(b"{")  # also inside strings
    most = min(limits.strings, limits.values)  # each takes a byte at least
    if openings <= min(limits.depth, limits.containers) and len(data) <= most:
        return None
    outside = outside_strings(data)
    containers = outside.count(b"[") + outside.count(b"{")
    if containers > limits.containers:
        return f"has {containers} arrays and objects, at most {limits.containers} are allowed"
    if (values := outside.count(b",") + containers) > limits.values:
        return f"has about {values} values, at most {limits.values} are allowed"
    # outside_strings leaves one quotation mark for each string
    if (strings := outside.count(b'"')) > limits.strings:
        return f"has {strings} strings and keys, at most {limits.strings} are allowed"
    if exceeds_depth(data, limits.depth):
        return f"nests arrays and objects more than {limits.depth} deep"
    return None


AS_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = {ord("["): 1, ord("]"): -1}


def exceeds_depth(data: bytes, most: int) -> bool:
    """Whether arrays and objects nest more than `most` levels deep.

    The result is meaningless for invalid JSON; the parser reports that.
    """
    brackets = outside_strings(data).translate(AS_SQUARE, NO_BRACKETS)
    if brackets.count(b"[") <= most:
        return False
    return max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > most


def outside_strings(data: bytes) -> bytes:
    """The text with each string replaced by one quotation mark.

    A byte is outside of strings when an even number of unescaped quotation marks precedes it.
    """
    if b"\\" in data:
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    return b'"'.join(data.split(b'"')[::2])
