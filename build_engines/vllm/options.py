"""The `vllm:` section of a model: how vLLM runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from build_engines.gpu.options import Count, DeviceId, Dtype, GpuOptions, KvCache, Lora, Ways
from build_engines.section import Section, base_of

Word = Annotated[str, StringConstraints(pattern=r"^[\w-]{1,64}$")]
PLAIN_PATH = re.compile(r"[\w/.-]+", re.ASCII)
ROWS = 256  # vLLM's own number depends on its version and the device


class VllmOptions(Section):
    """The model needs tensor_parallel x pipeline_parallel GPUs; on a CPU, both are 1.

    quantization: vLLM's name of a method, for weights that do not name theirs in config.json.
    max_rows: requests in one step.
    gpu_memory_utilization: the share of a GPU's memory for weights, activations and KV cache.
    kv_cache_gb: the size of the KV cache instead; without it, 4 on a CPU.
    memory_gb: of one GPU; default: what nvidia-smi reports. devices: default: the first ones.
    environment: a folder of `python -m venv` with vLLM; default: the Python of all Triton models.
    hang_seconds: without progress for so long, the engine counts as dead; 0: never.
    engine_args: further fields of vLLM's AsyncEngineArgs, by upstream's names.
    """

    dtype: Dtype = "auto"
    quantization: Word | None = None
    tensor_parallel: Ways = 1
    pipeline_parallel: Ways = 1
    devices: Annotated[tuple[DeviceId, ...], Field(min_length=1)] | None = None
    memory_gb: Annotated[float, Field(gt=0, le=4096)] | None = None
    max_rows: Count = ROWS
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    kv_cache_gb: Annotated[float, Field(gt=0, le=65_536)] | None = None
    lora: Lora | None = None
    environment: Path | None = None
    hang_seconds: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    engine_args: Annotated[dict[str, JsonValue], Field(max_length=64)] = Field(default_factory=dict)

    @field_validator("environment")
    @classmethod
    def _is_an_environment(cls, given: Path | None, info: ValidationInfo) -> Path | None:
        """Triton runs its bin/activate in a shell command without quotes."""
        if given is None:
            return None
        found = (base_of(info) / given.expanduser()).absolute()
        if not PLAIN_PATH.fullmatch(str(found)):
            raise PydanticCustomError("path", "may have letters, digits and /._- only")
        return found

    def as_gpu(self, context_length: int | None = None) -> GpuOptions:
        """The options that decide about memory and sharding, as TensorRT-LLM's."""
        is_fp8 = str(self.engine_args.get("kv_cache_dtype")).startswith("fp8")
        return GpuOptions(
            dtype=self.dtype,
            quantization="fp8" if self.quantization == "fp8" else None,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            devices=self.devices,
            memory_gb=self.memory_gb,
            max_batch_size=self.max_rows,
            max_num_tokens=max(8192, self.max_rows),
            max_seq_len=context_length,
            kv_cache=KvCache(
                fraction=self.gpu_memory_utilization, dtype="fp8" if is_fp8 else "auto"
            ),
        )
