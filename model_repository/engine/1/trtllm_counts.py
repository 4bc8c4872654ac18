"""TensorRT-LLM's iteration statistics -> the engine's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stats import Stats


def take(stats: Stats, iteration: Mapping[str, Any]) -> None:
    """Adds one iteration, as `LLM.get_stats_async` gives it with enable_iter_perf_stats."""
    batch = iteration.get("inflightBatchingStats") or {}
    prefilling, decoding = batch.get("numContextRequests", 0), batch.get("numGenRequests", 0)
    seconds = iteration.get("iterLatencyMS", 0.0) / 1000
    if prefilling:  # its time is counted as prefill's, as it is that which takes long
        stats.prefilled(batch.get("numCtxTokens", 0), seconds)
        seconds = 0.0
    if decoding:
        stats.decoded(decoding, seconds)
    stats.preemptions += batch.get("numPausedRequests", 0)
    stats.rows_prefilling, stats.rows_decoding = prefilling, decoding
    stats.waiting = iteration.get("numQueuedRequests", 0)


def rested(stats: Stats) -> None:
    """No request is under way, of which no iteration tells."""
    stats.rows_prefilling = stats.rows_decoding = stats.waiting = 0


def started(stats: Stats, cached_tokens: int) -> None:
    """A prompt of which so many tokens were in the cache."""
    stats.cached_tokens += cached_tokens
    if cached_tokens:
        stats.prefix_hits += 1
    else:
        stats.prefix_misses += 1
