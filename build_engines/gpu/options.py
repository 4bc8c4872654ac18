"""The `gpu:` section of a model: how TensorRT-LLM builds and runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from triton_openai.build_engines.gpu.speculation import Speculation
from triton_openai.build_engines.section import ModelName, Section
from triton_openai.build_engines.weights import WeightsField

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
Quantization = Literal["fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq", "int8_wo", "int4_wo"]
GpuArchitecture = Literal["ampere", "ada", "hopper", "blackwell"]
Ways = Annotated[int, Field(ge=1, le=1024)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
CALIBRATION_FILES = (".jsonl", ".txt")
AWQ = ("int4_awq", "w4a8_awq")
# quantize.py of TensorRT-LLM lowers the number for AWQ, which runs each text eleven times and more.
SAMPLES, AWQ_SAMPLES = 512, 32
PLAN_LORAS = 4  # that an engine plan holds, in its host's memory and on a GPU: LlmArgs' defaults


class KvCache(Section):
    """fraction: of the GPU memory that the weights leave. reuse: of prefixes, across requests.

    host_offload_gb: host memory for blocks that are evicted from the GPU.
    """

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reuse: bool = True
    host_offload_gb: Annotated[float, Field(ge=0, le=65_536)] = 0.0
    dtype: Literal["auto", "fp8", "int8"] = "auto"


class Lora(Section):
    """LoRA adapters, by the name that a request gives: Hugging Face (PEFT) folders.

    max_loras: how many are on a GPU at a time; all of them are in its host's memory.
    """

    adapters: Annotated[dict[ModelName, WeightsField], Field(min_length=1)]
    max_rank: Annotated[int, Field(ge=1, le=512)] = 64
    max_loras: Count = PLAN_LORAS


class Calibration(Section):
    """The texts that a quantization measures; by default those that ship here.

    file: .jsonl with an object with `text` in each line, or .txt with a blank line between texts.
    samples: its first texts are used, at most so many (512, AWQ 32), and 512 tokens of each.
    """

    file: Path | None = None
    samples: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_no_dataset(cls, given: Any) -> Any:
        if isinstance(given, dict) and "dataset" in given:
            reason = (
                "dataset is no option any more, nothing is fetched from the hub: write the texts "
                "to a .jsonl or .txt file, and give its path as file"
            )
            raise PydanticCustomError("refused", "{reason}", {"reason": reason})
        return given

    @field_validator("file")
    @classmethod
    def _is_of_a_known_kind(cls, given: Path | None, info: ValidationInfo) -> Path | None:
        if given is None:
            return None
        if given.suffix not in CALIBRATION_FILES:
            kinds = " or ".join(CALIBRATION_FILES)
            raise PydanticCustomError("file", "must be a {kinds} file", {"kinds": kinds})
        return Path((info.context or {}).get("base", ".")) / given.expanduser()


class Plan(Section):
    """Options of engine plans only. workers: ranks that are built at a time, one GPU each."""

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
        """Whether weights or KV cache get scales; for plans, only quantize.py writes them."""
        return self.quantization is not None or self.kv_cache.dtype != "auto"

    @property
    def is_calibrated(self) -> bool:
        """Whether texts are measured. int8_wo and int4_wo depend on the weights alone."""
        if self.engine == "plan" and self.kv_cache.dtype != "auto":
            return True
        return self.quantization not in {None, "int8_wo", "int4_wo"}

    @property
    def calibration_samples(self) -> int:
        default = AWQ_SAMPLES if self.quantization in AWQ else SAMPLES
        return self.calibration.samples or default


class PlanOptions(GpuOptions):
    """What NVIDIA's C++ backend serves: engine plans."""

    engine: Literal["plan"] = "plan"
