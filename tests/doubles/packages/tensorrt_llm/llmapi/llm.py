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
from .llm_args import TorchLlmArgs


class LLM:
    latest: ClassVar[LLM]  # the one that was started last, for tests
    args_class: ClassVar[Any] = TorchLlmArgs

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
        explicit = {
            "tokenizer": tokenizer,
            "tokenizer_mode": tokenizer_mode,
            "skip_tokenizer_init": skip_tokenizer_init,
            "trust_remote_code": trust_remote_code,
            "tensor_parallel_size": tensor_parallel_size,
            "dtype": dtype,
            "revision": revision,
            "tokenizer_revision": tokenizer_revision,
        }
        args = self.args_class(model=model, **explicit, **kwargs)
        self._lora = args.lora_config
        if self._lora is not None and len(self._lora.lora_dir) != 1:
            modules = self._lora.lora_target_modules
            assert len(modules) >= 1, "Expecting at least one lora target module"
        script = Path(model, "stand_in.json")
        self.script: dict[str, Any] = json.loads(script.read_text()) if script.exists() else {}
        if "start_error" in self.script:
            raise RuntimeError(self.script["start_error"])
        self._max_num_tokens = args.max_num_tokens
        self._stats = getattr(args, "enable_iter_perf_stats", False)
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

    def get_kv_cache_events_async(self, timeout: float | None = 2) -> AsyncIterator[dict[str, Any]]:
        assert self._executor is not None
        assert self._executor.kv_events is not None, "no request has been submitted"
        self._executor.kv_events.set_timeout(timeout)
        return self._executor.kv_events

    def shutdown(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


async def _nothing() -> AsyncIterator[dict[str, Any]]:
    return
    yield {}
