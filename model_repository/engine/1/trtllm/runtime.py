"""The `tensorrt_llm` runtime: a JobLoop over TensorRT-LLM's LLM API."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from block_log import BlockLog
from hang_watch import HangWatch
from job_loop import Collector, JobLoop
from port import Job
from stats import Stats
from trtllm import kv_events, progress
from trtllm.generator import Generator
from trtllm.library import (
    PYTORCH,
    Library,
    background_error,
    is_alive,
    prepare_environment,
)
from trtllm.sampling_params import SamplingTranslator

BLOCK = 32  # tokens: the default of KvCacheConfig.tokens_per_block


class TrtllmRuntime(JobLoop):
    """llm: a running tensorrt_llm.LLM."""

    engine = "TensorRT-LLM"
    hang_option = "gpu.hang_seconds"

    def __init__(
        self,
        llm: Any,
        translator: SamplingTranslator,
        hang_watch: HangWatch,
        die: Callable[[str], None],
        *,
        has_statistics: bool = True,
        blocks: BlockLog | None = None,
    ) -> None:
        self._llm = llm
        self._has_statistics = has_statistics
        stats, collectors = Stats(has_kv_blocks=has_statistics), list[Collector]()
        self._generator = Generator(llm, translator, stats, hang_watch.progressed, blocks)
        if has_statistics:
            collectors.append(
                lambda: progress.collect(
                    llm, stats, hang_watch.progressed, lambda: not self.in_flight
                )
            )
        if blocks is not None:
            collectors.append(lambda: kv_events.collect(llm, blocks))
        super().__init__(stats, hang_watch, die, blocks=blocks, collectors=collectors)

    async def generate(self, job: Job) -> None:
        await self._generator.generate(job)

    def forget(self, job: Job) -> None:
        self._generator.begun.discard(job)

    def why_ended(self, error: Exception | None) -> str | None:
        if is_alive(self._llm):
            return None
        reason = error or background_error(self._llm) or "it gave no reason"
        return f"TensorRT-LLM's executor has ended: {reason}"

    def watch(self) -> None:
        """Without statistics, a job counts as waiting up to its first token."""
        if not self._has_statistics:
            self.stats.rows_decoding = len(self._generator.begun)
            self.stats.waiting = self.in_flight - self.stats.rows_decoding

    def shut_down(self) -> None:
        self._llm.shutdown()


def load(artifacts: Path, parameters: dict[str, str], die: Callable[[str], None]) -> TrtllmRuntime:
    """Starts TensorRT-LLM. `parameters` are the engine's Triton config parameters.

    Raises:
        StartFailed: TensorRT-LLM is not installed, or cannot load the model.
    """
    backend, arguments = parameters["trtllm_backend"], parameters["llm_args"]
    prepare_environment(os.environ, parameters)
    library = Library.load(backend)
    given = json.loads(arguments)
    translator = SamplingTranslator(
        library=library,
        adapters=library.adapters(parameters["lora_adapters"]),
        backend=backend,
        end_ids=tuple(int(token) for token in parameters["end_ids"].split(",") if token),
        logits_size=int(parameters["logits_size"]),
        max_log_probs=int(parameters["max_log_probs"]) if parameters["max_log_probs"] else None,
        has_guides=bool(given.get("guided_decoding_backend")),
    )
    cache = given.get("kv_cache_config", {})
    blocks: BlockLog | None = None
    if cache.get("event_buffer_max_size") and not given.get("enable_attention_dp"):
        blocks = BlockLog(parameters["public_name"], cache.get("tokens_per_block", BLOCK))
    engine = (artifacts / "engine").resolve()  # absolute, for ranks on other nodes
    return TrtllmRuntime(
        library.start(engine, arguments),
        translator,
        HangWatch(float(parameters["hang_seconds"])),
        die,
        has_statistics=backend != PYTORCH or bool(given.get("enable_iter_perf_stats")),
        blocks=blocks,
    )
