"""The `gpu:` section of a model: how TensorRT-LLM builds and runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from build_engines.gpu.legacy.options import LORAS, Lookahead, Plan
from build_engines.section import ModelName, Off, Section, base_of
from build_engines.weights import WeightsField

DraftLength = Annotated[int, Field(ge=1, le=64)]


class Eagle3(Section):
    """A small model proposes `max_draft_len` tokens from the large model's hidden states."""

    method: Literal["eagle3"]
    draft: WeightsField
    max_draft_len: DraftLength = 3


class DraftTarget(Section):
    """A smaller model of the same vocabulary proposes `max_draft_len` tokens."""

    method: Literal["draft_target"]
    draft: WeightsField
    max_draft_len: DraftLength = 4


class Mtp(Section):
    """The model's own multi-token-prediction layers propose; DeepSeek V3 has one."""

    method: Literal["mtp"]
    layers: Annotated[int, Field(ge=1, le=16)] = 1


class NGram(Section):
    """Proposes the tokens that followed the last tokens earlier in the text."""

    method: Literal["ngram"]
    max_draft_len: DraftLength = 4
    max_matching_ngram_size: Annotated[int, Field(ge=1, le=64)] = 2


Speculation = Annotated[
    Eagle3 | DraftTarget | Mtp | NGram | Lookahead, Field(discriminator="method")
]


Dtype = Literal["auto", "float16", "bfloat16", "float32"]
Quantization = Literal["fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq", "int8_wo", "int4_wo"]
GpuArchitecture = Literal["ampere", "ada", "hopper", "blackwell"]
Mpi = Literal["mpirun", "spawn", "single_process"]
Ways = Annotated[int, Field(ge=1, le=1024)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
# A GPU's index in nvidia-smi, or its UUID; MIG instances have UUIDs only.
DeviceId = (
    Annotated[int, Field(ge=0, le=1023)]
    | Annotated[str, StringConstraints(pattern=r"^(GPU|MIG)-[0-9A-Fa-f][0-9A-Fa-f-]{3,}$")]
)
CALIBRATION_FILES = (".jsonl", ".txt")
AWQ = ("int4_awq", "w4a8_awq")
# quantize.py of TensorRT-LLM lowers the number for AWQ, which runs each text eleven times and more.
SAMPLES, AWQ_SAMPLES = 512, 32


class KvCache(Section):
    """fraction: the share of the GPU memory that is left after the weights are loaded.

    reuse: requests share the cache of equal prefixes.
    host_offload_gb: host memory for blocks that leave the GPU.
    event_buffer_max_size: changes of the cache that wait to be reported to proxies, which route by
    them; 0 for no reports.
    """

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reuse: bool = True
    host_offload_gb: Annotated[float, Field(ge=0, le=65_536)] = 0.0
    dtype: Literal["auto", "fp8", "int8"] = "auto"
    event_buffer_max_size: Annotated[int, Field(ge=0, le=10_000_000)] = 0


class Lora(Section):
    """LoRA adapters, each a Hugging Face (PEFT) folder, by the model name that callers use.

    max_loras: how many are on a GPU at a time. The host's memory holds all of them.
    """

    adapters: Annotated[dict[ModelName, WeightsField], Field(min_length=1)]
    max_rank: Annotated[int, Field(ge=1, le=512)] = 64
    max_loras: Count = LORAS


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
                "dataset is no longer an option: nothing is fetched from the hub: write the texts "
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
        return base_of(info) / given.expanduser()


class GpuOptions(Section):
    """engine: `pytorch` serves a checkpoint, `plan` an engine that trtllm-build made.

    The model needs tensor_parallel x pipeline_parallel GPUs; expert_parallel divides
    tensor_parallel. attention_dp: each of the tensor_parallel GPUs serves requests of its own, with
    all attention heads, and max_batch_size and max_num_tokens are those of one GPU.
    devices: the GPUs of a node; default: the first ones.
    memory_gb, architecture: of one GPU; default: what nvidia-smi reports.
    max_batch_size: requests in one step; default: of a plan 64, of a checkpoint what the KV cache
    has room for, 256 to 2,048. max_num_tokens: tokens in one step, prompts included.
    max_seq_len: prompt and answer together; default: the model's own limit.
    sampler: of the PyTorch runtime before 1.3.0rc25; default: `trtllm`, which reports no
    alternatives to a token. `torch` supports no penalties, min_p, min_tokens, bad words or seeds.
    hang_seconds: without progress for so long, the engine counts as dead; 0: never.
    mpi: how TensorRT-LLM's worker processes start; default: `mpirun` for the only GPU model of a
    models file, else `spawn`.
    llm_args: further arguments of TensorRT-LLM's `LLM`, by upstream's names.
    """

    engine: Literal["pytorch", "plan"] = "pytorch"
    dtype: Dtype = "auto"
    quantization: Quantization | None = None
    calibration: Calibration = Calibration()
    tensor_parallel: Ways = 1
    pipeline_parallel: Ways = 1
    expert_parallel: Ways = 1
    attention_dp: bool = False
    gpus_per_node: Ways = 8
    devices: Annotated[tuple[DeviceId, ...], Field(min_length=1)] | None = None
    memory_gb: Annotated[float, Field(gt=0, le=4096)] | None = None
    architecture: GpuArchitecture | None = None
    max_batch_size: Count = 64
    max_num_tokens: Count = 8192
    max_seq_len: Annotated[int, Field(ge=16, le=2**31 - 1)] | None = None
    kv_cache: KvCache = KvCache()
    chunked_prefill: bool = True
    scheduler: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    guided_decoding: Annotated[Literal["xgrammar", "llguidance", "off"], Off] = "xgrammar"
    sampler: Literal["trtllm", "torch"] | None = None
    speculative: Speculation | None = None
    lora: Lora | None = None
    plan: Plan = Plan()
    iteration_stats: bool = False
    hang_seconds: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    mpi: Mpi | None = None
    llm_args: Annotated[dict[str, JsonValue], Field(max_length=64)] = Field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """The number of GPUs, and of processes."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def attention_ways(self) -> int:
        """The number of GPUs over which the attention of one request is split."""
        return 1 if self.attention_dp else self.tensor_parallel

    @property
    def attention_groups(self) -> int:
        """How many parts of the engine have requests of their own."""
        return self.tensor_parallel // self.attention_ways

    @property
    def rows(self) -> int:
        """The number of requests in one step of all GPUs."""
        return self.max_batch_size * self.attention_groups

    @property
    def node_size(self) -> int:
        """The number of GPUs that the model uses on one node."""
        return min(self.world_size, self.gpus_per_node)

    @property
    def node_devices(self) -> tuple[str, ...]:
        """The GPUs that the model uses on one node: the named ones, else the first ones."""
        named = range(self.node_size) if self.devices is None else self.devices
        return tuple(str(device) for device in named)

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
    """The options of NVIDIA's C++ backend, which serves engine plans."""

    engine: Literal["plan"] = "plan"
