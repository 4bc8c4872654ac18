"""vLLM's iterations -> Stats."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stats import Stats


class StatRecorder:
    """As vLLM's StatLoggerBase, which AsyncLLM calls after each iteration with outputs.

    An iteration takes the time since the last one, if there were running requests; with prompt
    tokens in it, all of that counts as prefill.
    """

    def __init__(
        self,
        stats: Stats,
        progressed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stats = stats
        self._progressed = progressed
        self._clock = clock
        self._seen_at = clock()

    def connected(self, config: Any, engine_index: int = 0) -> StatRecorder:
        """The factory that AsyncLLM wants. config: its VllmConfig, complete."""
        stats, cache = self._stats, config.cache_config
        stats.most_rows = config.scheduler_config.max_num_seqs
        stats.kv_blocks, stats.kv_block_tokens = cache.num_gpu_blocks or 0, cache.block_size
        return self

    def record(
        self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any
    ) -> None:
        self._progressed()
        now = self._clock()
        seconds = now - self._seen_at if self._stats.rows else 0.0
        self._seen_at = now
        if iteration_stats is not None:
            self._add(iteration_stats, seconds)
        if scheduler_stats is not None:
            self._set(scheduler_stats)

    def _add(self, iteration: Any, seconds: float) -> None:
        if iteration.num_prompt_tokens:
            self._stats.prefilled(iteration.num_prompt_tokens, seconds)
            seconds = 0.0
        if iteration.num_generation_tokens:
            self._stats.decoded(iteration.num_generation_tokens, seconds)
        self._stats.preemptions += iteration.num_preempted_reqs

    def _set(self, scheduler: Any) -> None:
        stats = self._stats
        stats.rows_decoding = scheduler.num_running_reqs
        stats.waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
        stats.kv_blocks_used = round(scheduler.kv_cache_usage * stats.kv_blocks)

    def log_engine_initialized(self) -> None:
        pass

    def log(self) -> None:
        pass

    def record_sleep_state(self, *_: Any) -> None:
        pass
