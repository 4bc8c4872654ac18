"""The `gpu:` section of a model: how TensorRT-LLM builds and runs it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from triton_openai.build_engines.gpu.speculation import Speculation
from triton_openai.build_engines.section import ModelName, Section
from triton_openai.build_engines.weights import WeightsField

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
Quantization = Literal["fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq", "int8_wo", "int4_wo"]
GpuArchitecture = Literal["ampere", "ada", "hopper", "blackwell"]
Ways = Annotated[int, Field(ge=1, le=1024)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
PLAN_LORAS = 4  # that an engine plan holds, in its host's memory and on a GPU: LlmArgs' defaults


class KvCache(Section):
    """fraction: of the GPU memory that the weights leave. reuse: of prefixes, across requests.

    host_offload_gb: blocks that are pushed out go to host memory.
    """

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reuse: bool = True
    host_offload_gb: Annotated[float, Field(ge=0, le=65_536)] = 0.0
    dtype: Literal["auto", "fp8", "int8"] = "auto"


class Lora(Section):
    """Adapters by the name that a request asks for; Hugging Face (PEFT) folders.

    max_loras: as many are on a GPU at a time; all are in its host's memory.
    """

    adapters: Annotated[dict[ModelName, WeightsField], Field(min_length=1)]
    max_rank: Annotated[int, Field(ge=1, le=512)] = 64
    max_loras: Count = PLAN_LORAS


class Calibration(Section):
    """The texts that a quantization measures: a data set's name or folder, and how many."""

    dataset: Annotated[str, Field(min_length=1)] = "cnn_dailymail"
    samples: Count = 512


class Plan(Section):
    """Of engine plans only. workers: ranks that are built at a time, a GPU each."""

    gemm_plugin: Literal["auto", "off"] | None = None  # auto, where the weights' type allows it
    reduce_fusion: bool = False
    workers: Ways = 1


class GpuOptions(Section):
    """engine: `pytorch` serves a checkpoint, `plan` an engine that trtllm-build made.

    GPUs: tensor_parallel x pipeline_parallel; expert_parallel divides tensor_parallel.
    max_batch_size: requests in one step. max_num_tokens: tokens in one step, prompts included.
    max_seq_len: prompt and answer; what the model knows by default.
    sampler: of the PyTorch runtime. Up to 1.2 `trtllm` has no alternatives to a token, and `torch`
    no penalties, min_p, min_tokens, bad words and seeds.
    memory_gb and architecture are of one GPU: nvidia-smi is asked where they are not given.
    """

    engine: Literal["pytorch", "plan"] = "pytorch"
    dtype: Dtype = "auto"
    quantization: Quantization | None = None
    calibration: Calibration = Calibration()
    tensor_parallel: Ways = 1
    pipeline_parallel: Ways = 1
    expert_parallel: Ways = 1
    gpus_per_node: Ways = 8
    memory_gb: Annotated[float, Field(gt=0, le=4096)] | None = None
    architecture: GpuArchitecture | None = None
    max_batch_size: Count = 64
    max_num_tokens: Count = 8192
    max_seq_len: Annotated[int, Field(ge=16, le=2**31 - 1)] | None = None
    kv_cache: KvCache = KvCache()
    chunked_prefill: bool = True
    scheduler: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    guided_decoding: Literal["xgrammar", "llguidance", "off"] = "xgrammar"
    sampler: Literal["trtllm", "torch"] = "trtllm"
    speculative: Speculation | None = None
    lora: Lora | None = None
    plan: Plan = Plan()

    @property
    def world_size(self) -> int:
        """GPUs, one process each."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def has_scales(self) -> bool:
        """Whether the weights or the KV cache get scales, which only quantize.py measures."""
        return self.quantization is not None or self.kv_cache.dtype != "auto"


class PlanOptions(GpuOptions):
    """What NVIDIA's C++ backend serves: engine plans."""

    engine: Literal["plan"] = "plan"
