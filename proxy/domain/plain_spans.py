"""Where a prompt's text spells control tokens that are its callers' words, and stay plain text.

Spans are packed: a start and an end each, in characters, as little-endian int32, in order and apart
from each other. Made by callers_text; the tokenizer step reads them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

SIZE = 4  # bytes of a number


def packed(spans: Iterable[tuple[int, int]]) -> bytes:
    return array("i", [at for span in spans for at in span]).tobytes()


def are_at_end(text: str, spans: bytes) -> bool:
    """Whether one of them ends where the text does, white space left out."""
    ends = memoryview(spans).cast("i")[1::2]
    end = len(text.rstrip())
    at = bisect_left(ends, end)
    return at < len(ends) and ends[at] == end


def opening(text: str, spans: bytes, prefix: str) -> str:
    """The prompt as a parser of its answer reads it: its end says whether reasoning is open.

    Empty where that end, before the answer's `prefix`, is a caller's control token.
    """
    if spans and are_at_end(text.removesuffix(prefix.lstrip()), spans):
        return ""
    return text
