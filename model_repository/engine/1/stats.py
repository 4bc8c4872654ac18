"""What the engine counts of itself. Written by the decode loop, read by `counters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roster import Roster


@dataclass(slots=True)
class Stats:
    """Totals since the start, but for the last five, which are of now."""

    prefill_steps: int = 0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_steps: int = 0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    cached_tokens: int = 0
    prefix_hits: int = 0
    prefix_misses: int = 0
    evicted_blocks: int = 0
    preemptions: int = 0
    rows_prefilling: int = 0
    rows_decoding: int = 0
    waiting: int = 0
    kv_row_bytes: int = 0
    kv_cached_bytes: int = 0

    def prefilled(self, tokens: int, seconds: float) -> None:
        self.prefill_steps += 1
        self.prefill_tokens += tokens
        self.prefill_seconds += seconds

    def decoded(self, rows: int, seconds: float) -> None:
        self.decode_steps += 1
        self.decode_tokens += rows
        self.decode_seconds += seconds

    def present(self, roster: Roster, token_bytes: int) -> None:
        """What is of now."""
        self.evicted_blocks = roster.cache.evicted_blocks
        self.rows_prefilling = len(roster.batch.prefilling)
        self.rows_decoding = len(roster.batch.decoding)
        self.waiting = len(roster.waiting)
        self.kv_row_bytes = sum(one.computed for one in roster.batch.running) * token_bytes
        self.kv_cached_bytes = roster.cache.used_bytes
