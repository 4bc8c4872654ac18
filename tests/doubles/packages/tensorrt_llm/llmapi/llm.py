"""Upstream's LLM: checks its arguments, hands requests to the executor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from ..executor import GenerationExecutor
from ..executor.request import LoRARequest
from ..executor.result import GenerationResult
from ..sampling_params import SamplingParams
from .llm_args import DecodingBaseConfig

KNOWN = {
    "backend", "pipeline_parallel_size", "moe_expert_parallel_size", "max_batch_size",
    "max_num_tokens", "max_seq_len", "kv_cache_config", "scheduler_config",
    "enable_chunked_prefill", "guided_decoding_backend", "sampler_type", "speculative_config",
    "enable_iter_perf_stats", "stream_interval", "lora_config", "quant_config", "gpus_per_node",
    "cuda_graph_config",
}  # fmt: skip
LORA_CONFIG = {
    "lora_dir", "lora_ckpt_source", "max_lora_rank", "lora_target_modules",
    "trtllm_modules_to_hf_modules", "max_loras", "max_cpu_loras",
    "swap_gate_up_proj_lora_b_weight",
}  # fmt: skip


class LLM:
    latest: ClassVar[LLM]  # the one that was started last, for tests

    def __init__(
        self,
        model: str | Path,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        for key in kwargs:
            if key not in KNOWN:
                raise ValueError(f"LLM got invalid argument: {key}")
        speculative = kwargs.get("speculative_config")
        if speculative is not None and not isinstance(speculative, DecodingBaseConfig):
            raise ValueError("speculative_config: Extra inputs are not permitted: decoding_type")
        self._lora = kwargs.get("lora_config")
        if self._lora is not None:
            assert self._lora.keys() <= LORA_CONFIG
            if len(self._lora.get("lora_dir", ())) != 1:
                modules = self._lora["lora_target_modules"]
                assert len(modules) >= 1, "Expecting at least one lora target module"
        script = Path(model, "stand_in.json")
        self.script: dict[str, Any] = json.loads(script.read_text()) if script.exists() else {}
        if "start_error" in self.script:
            raise RuntimeError(self.script["start_error"])
        self._max_num_tokens = kwargs.get("max_num_tokens", 8192)
        self._stats = kwargs.get("enable_iter_perf_stats", False)
        self.complaints: list[str] = []
        self._executor: GenerationExecutor | None = GenerationExecutor(Path(model), self.script)
        LLM.latest = self

    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams | None = None,
        lora_request: LoRARequest | None = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        _postproc_params: Any = None,
        scheduling_params: Any = None,
        cache_salt: str | None = None,
    ) -> GenerationResult:
        if self._executor is None or self._executor.is_shutdown():
            raise RuntimeError("LLM is shutting down")
        assert sampling_params is not None
        assert sampling_params.end_id is not None
        assert streaming
        if len(inputs) > self._max_num_tokens:
            raise ValueError(
                f"The sum of prompt length ({len(inputs)}), query length (0) should not exceed "
                f"max_num_tokens ({self._max_num_tokens})"
            )
        adapter = None if self._lora is None else lora_request  # else it is ignored in silence
        return self._executor.submit(list(inputs), sampling_params, adapter, cache_salt)

    def get_stats_async(self, timeout: float | None = 2) -> AsyncIterator[dict[str, Any]]:
        iterations = None if self._executor is None else self._executor.iterations
        if iterations is None:
            self.complaints.append("Iteration statistics are not available yet.")
        if iterations is None or not self._stats:
            return _nothing()
        iterations.set_timeout(timeout)
        return iterations

    def shutdown(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


async def _nothing() -> AsyncIterator[dict[str, Any]]:
    return
    yield {}
