"""What the engine counts of itself. Written by the decode loop, read by `counters`."""

from __future__ import annotations

from dataclasses import dataclass


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
