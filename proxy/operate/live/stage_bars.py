"""The stages of one request as bars on one scale. Pure functions; `trace_view` prints them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARK = "█"
Stage = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """depth: 0 for a stage that is part of no other."""

    depth: int
    stage: Stage


def rows(stages: Sequence[Stage]) -> Iterator[Row]:
    """In the order in which they began, each followed by the stages that are part of it."""
    parts: dict[int | None, list[int]] = {}
    for place, stage in enumerate(stages):
        parent = stage["parent"]
        # Only an earlier stage can be one's parent: whatever was sent, this ends.
        known = parent if parent is not None and 0 <= parent < place else None
        parts.setdefault(known, []).append(place)

    def below(parent: int | None, depth: int) -> Iterator[Row]:
        for place in sorted(parts.get(parent, ()), key=lambda place: stages[place]["begin_ms"]):
            yield Row(depth=depth, stage=stages[place])
            yield from below(place, depth + 1)

    yield from below(None, 0)


def bar(begin: float, duration: float, total: float, width: int) -> str:
    """A bar in a field of `width` characters that stands for 0 to `total`; at least one character
    long. What lies outside of the field is cut off.
    """
    if total <= 0:
        return MARK.ljust(width)
    begins, ends = (min(max(at, 0.0), total) / total for at in (begin, begin + duration))
    first = min(math.floor(begins * width), width - 1)
    last = max(math.ceil(ends * width), first + 1)
    return (" " * first + MARK * (last - first)).ljust(width)
