"""TensorRT-LLM's progress: the statistics of its iterations, and whether it makes none although
requests are in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from stats import Stats
from trtllm.kv_events import NOTHING_NEW


class HangWatch:
    """Progress is a response to a request, or an iteration in the statistics.

    Time without requests does not count. It does not start the count again either: proxies cancel
    requests that stall (STALL_TIMEOUT_S), and a cancelled request is not progress.

    limit_s: without progress for longer than this, TensorRT-LLM hangs; 0 for no limit.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._waited_s = 0.0
        self._seen_at = clock()

    def progressed(self) -> None:
        self._waited_s, self._seen_at = 0.0, self._clock()

    def stalled_s(self, in_flight: int) -> float:
        """Seconds with requests since the last progress. Call it often: it measures by its calls.

        in_flight: the requests since the last call.
        """
        now = self._clock()
        if in_flight:
            self._waited_s += now - self._seen_at
        self._seen_at = now
        return self._waited_s

    def is_hung(self, in_flight: int) -> bool:
        return 0 < self.limit_s < self.stalled_s(in_flight)


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
