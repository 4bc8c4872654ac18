"""The counters of a running engine. The runtime writes them, metrics.py reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Totals since the start, and from `rows_prefilling` on the current values.

    most_rows: 0 if the runtime does not know it. kv_blocks: of the whole KV cache, in blocks of
    `kv_block_tokens`; has_kv_blocks: the runtime knows them.
    """

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
    preempted: int = 0
    kv_row_bytes: int = 0
    kv_cached_bytes: int = 0
    seconds_without_progress: float = 0.0
    most_rows: int = 0
    has_kv_blocks: bool = False
    kv_block_tokens: int = 0
    kv_blocks: int = 0
    kv_blocks_used: int = 0

    @property
    def rows(self) -> int:
        return self.rows_prefilling + self.rows_decoding

    @property
    def kv_blocks_free(self) -> int:
        """With those of the prefix cache, which rows may take at any time."""
        return max(0, self.kv_blocks - self.kv_blocks_used)

    @property
    def kv_fraction(self) -> float:
        """The share of the KV cache that rows hold, 0 to 1."""
        return min(1.0, self.kv_blocks_used / self.kv_blocks) if self.kv_blocks else 0.0

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
