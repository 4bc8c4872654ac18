"""A plugin of vLLM: the tokens of prompts that it read from its prefix cache, on Triton's metrics
port. The backends report none.
"""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils
from vllm.v1.metrics.loggers import StatLoggerBase


class PrefixHits(StatLoggerBase):
    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._family = pb_utils.MetricFamily(
            name="vllm:prefix_cache_hits",
            description="Tokens of prompts that were read from the prefix cache.",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self._metric = self._family.Metric(labels={"runner": vllm_config.model_config.runner_type})

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None and scheduler_stats.prefix_cache_stats is not None:
            self._metric.increment(scheduler_stats.prefix_cache_stats.hits)

    def log_engine_initialized(self) -> None:
        pass
