"""The counters of a running engine. The runtime writes them, metric_reporter.py reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Totals since the start; the last six fields are the current values."""

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
    seconds_without_progress: float = 0.0

    def prefilled(self, tokens: int, seconds: float) -> None:
        self.prefill_steps += 1
        self.prefill_tokens += tokens
        self.prefill_seconds += seconds

    def decoded(self, rows: int, seconds: float) -> None:
        self.decode_steps += 1
        self.decode_tokens += rows
        self.decode_seconds += seconds

    def looked_up(self, cached_tokens: int) -> None:
        """Counts the lookup of a new prompt in the prefix cache, which found `cached_tokens`."""
        self.cached_tokens += cached_tokens
        self.prefix_hits += cached_tokens > 0
        self.prefix_misses += cached_tokens == 0
