"""How much of requests and answers is recorded, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = 4_000_000  # bytes of one request and its answer
MOST_HELD = 64_000_000  # bytes in the memory of one process, until they are written


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """bytes: of all files. sample: the share of requests that is recorded, 0 to 1."""

    keep_days: int
    bytes: int
    sample: float = 1.0
    record_bytes: int = LARGEST
    held_bytes: int = MOST_HELD
