"""The statistics of TensorRT-LLM's iterations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from stats import Stats
from trtllm.kv_events import NOTHING_NEW

logger = logging.getLogger(__name__)

COLLECT_EVERY_S = 0.5
# From 1.3 on, a longer wait than 0 blocks the event loop's thread for 0.1 s when nothing is new.
WAIT_S = 0.0


async def collect(
    llm: Any, stats: Stats, progressed: Callable[[], None], is_idle: Callable[[], bool]
) -> None:
    """Adds new iterations twice a second, until it is cancelled.

    llm: a tensorrt_llm.LLM. progressed: called for each iteration.
    """
    try:
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            with contextlib.suppress(*NOTHING_NEW):
                async for iteration in _new_iterations(llm):
                    progressed()
                    add(stats, iteration)
            if is_idle():
                reset_gauges(stats)
    except Exception:
        logger.exception("cannot collect TensorRT-LLM's statistics: the metrics stand still")


def add(stats: Stats, iteration: Mapping[str, Any]) -> None:
    """Adds one iteration, as `LLM.get_stats_async` yields it with enable_iter_perf_stats."""
    batch = iteration.get("inflightBatchingStats") or {}
    prefilling, decoding = batch.get("numContextRequests", 0), batch.get("numGenRequests", 0)
    seconds = iteration.get("iterLatencyMS", 0.0) / 1000
    if prefilling:  # its time counts as prefill time, because prefill takes most of it
        stats.prefilled(batch.get("numCtxTokens", 0), seconds)
        seconds = 0.0
    if decoding:
        stats.decoded(decoding, seconds)
    stats.preemptions += batch.get("numPausedRequests", 0)
    stats.rows_prefilling, stats.rows_decoding = prefilling, decoding
    stats.waiting = iteration.get("numQueuedRequests", 0)
    blocks = iteration.get("kvCacheStats") or {}
    stats.kv_block_tokens = blocks.get("tokensPerBlock", 0)
    stats.kv_blocks = blocks.get("maxNumBlocks", 0)
    stats.kv_blocks_used = blocks.get("usedNumBlocks", 0)


def reset_gauges(stats: Stats) -> None:
    """Sets its rows, waiting requests and KV blocks in use to 0: when idle, TensorRT-LLM reports
    no iterations.
    """
    stats.rows_prefilling = stats.rows_decoding = stats.waiting = stats.kv_blocks_used = 0


def _new_iterations(llm: Any) -> Any:
    """Once exhausted, TensorRT-LLM's iterator stays so until the next request, unless marked."""
    iterations = llm.get_stats_async(timeout=WAIT_S)
    if hasattr(iterations, "mark_undone"):  # an LLM without statistics returns a plain generator
        iterations.mark_undone()
    return iterations
