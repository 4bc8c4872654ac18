"""Options that engine plans or NVIDIA's C++ backend cannot serve, and those that only they can."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from build_engines.gpu.architecture import Architecture
from build_engines.gpu.legacy.commands import CONVERTERS
from build_engines.gpu.legacy.options import LORAS, Plan
from build_engines.gpu.options import AWQ, AWQ_SAMPLES, GpuOptions, PlanOptions
from build_engines.gpu.refusals import Refusal, Rule, broken
from build_engines.gpu.toolkit import CONTAINER

PYTORCH_READS = ("fp8", "nvfp4", "int4_awq", "w4a8_awq")
LAST = Version("1.3.0rc20")
NOTICE = (
    f"engine plans and NVIDIA's C++ backend are legacy: TensorRT-LLM {LAST} is the last version "
    "with them. Use runtime: tensorrt_llm with engine: pytorch"
)


def problems(options: GpuOptions, shape: Architecture, version: Version) -> Iterator[str]:
    """Why this version cannot build a plan of this model."""
    if version > LAST:
        yield (
            f"TensorRT-LLM {version} no longer builds engine plans: use runtime: "
            f"tensorrt_llm with engine: pytorch, or the container {CONTAINER} (1.2.1)"
        )
    converter, native = CONVERTERS.get(shape.kind), shape.native_quantization
    if converter is None:
        known = ", ".join(CONVERTERS)
        yield f"engine plans support {known}, not {shape.kind}: use engine: pytorch"
    elif native is not None:
        yield f"engine plans need 16-bit weights, and these are {native}: use engine: pytorch"
    elif options.pipeline_parallel > 1 and not converter.can_pipeline and not options.has_scales:
        yield f"TensorRT-LLM's converter for {shape.kind} has no pipeline_parallel: leave it out"


def refusals(options: GpuOptions) -> Iterator[Refusal]:
    """Every rule that these options break, in the order of RULES."""
    yield from broken(RULES, options)
    if isinstance(options, PlanOptions):
        yield from _cpp_refusals(options)


def _is_plan(options: GpuOptions) -> bool:
    return options.engine == "plan"


def _pages_prompts(options: GpuOptions) -> bool:
    """If not, trtllm-build switches use_paged_context_fmha off with a warning (its builder.py)."""
    if options.kv_cache.dtype == "fp8":
        return options.quantization in {"fp8", "w4a8_awq", "nvfp4"}
    return options.kv_cache.dtype != "int8"


def _adapters(options: GpuOptions) -> int:
    return 0 if options.lora is None else len(options.lora.adapters)


def _max_loras(options: GpuOptions) -> int:
    return LORAS if options.lora is None else options.lora.max_loras


def _method(options: GpuOptions) -> str | None:
    return None if options.speculative is None else options.speculative.method


RULES = (
    Rule(
        ("quantization",),
        lambda o: not _is_plan(o) and o.quantization in {"int8_sq", "int8_wo", "int4_wo"},
        f"TensorRT-LLM's PyTorch runtime reads {', '.join(PYTORCH_READS)} as nvidia-modelopt "
        "writes them: take one of them, or engine: plan",
    ),
    Rule(
        ("calibration", "samples"),
        lambda o: _is_plan(o) and o.quantization in AWQ and o.calibration_samples > AWQ_SAMPLES,
        f"TensorRT-LLM's quantize.py measures {AWQ_SAMPLES} texts for AWQ at most: leave it out",
    ),
    Rule(
        ("expert_parallel",),
        lambda o: _is_plan(o) and o.expert_parallel > 1 and o.has_scales,
        "TensorRT-LLM's quantize.py shards experts by tensor only: leave out expert_parallel, the "
        "quantization, or engine: plan",
    ),
    Rule(
        ("llm_args",),
        lambda o: _is_plan(o) and bool(o.llm_args),
        "they are those of the PyTorch runtime: leave them out, or use engine: pytorch",
    ),
    Rule(
        ("attention_dp",),
        lambda o: _is_plan(o) and o.attention_dp,
        "only the PyTorch runtime has it: leave it out, or use engine: pytorch",
    ),
    Rule(
        ("kv_cache", "dtype"),
        lambda o: not _is_plan(o) and o.kv_cache.dtype == "int8",
        "the PyTorch runtime has no int8 KV cache: use fp8, or engine: plan",
    ),
    Rule(
        ("kv_cache", "dtype"),
        lambda o: _is_plan(o) and not _pages_prompts(o) and (o.chunked_prefill or o.kv_cache.reuse),
        "chunked_prefill and kv_cache.reuse need paged attention over prompts. A plan has it only "
        "with dtype auto, or with fp8 and weights in fp8, w4a8_awq or nvfp4: set both to false",
    ),
    Rule(
        ("guided_decoding",),
        lambda o: _is_plan(o) and o.guided_decoding == "llguidance",
        "llguidance works with the PyTorch runtime only: use xgrammar",
    ),
    Rule(
        ("iteration_stats",),
        lambda o: _is_plan(o) and o.iteration_stats,
        "this switch is for the PyTorch runtime; engine plans always collect the statistics",
    ),
    Rule(
        ("sampler",),
        lambda o: _is_plan(o) and o.sampler == "torch",
        "only the PyTorch runtime has this sampler: leave it out, or use engine: pytorch",
    ),
    Rule(
        ("speculative", "method"),
        lambda o: _is_plan(o) and _method(o) not in {None, "lookahead"},
        "plans support lookahead only: use it, or engine: pytorch (runtime: tensorrt_llm)",
    ),
    Rule(
        ("speculative", "method"),
        lambda o: not _is_plan(o) and _method(o) == "lookahead",
        "the PyTorch runtime has no lookahead decoding: use ngram, or engine: plan",
    ),
    Rule(
        ("lora", "adapters"),
        lambda o: _is_plan(o) and _adapters(o) > LORAS,
        f"an engine plan holds {LORAS} adapters: use fewer, or engine: pytorch",
    ),
    Rule(
        ("lora", "max_loras"),
        lambda o: _is_plan(o) and _max_loras(o) != LORAS,
        f"an engine plan holds {LORAS}: leave it out, or use engine: pytorch",
    ),
    Rule(
        ("plan", "gemm_plugin"),
        lambda o: o.plan.gemm_plugin == "auto" and o.quantization == "fp8",
        "gemm_plugin auto is for float16 and bfloat16: with fp8 it must be off",
    ),
    Rule(
        ("plan",),
        lambda o: not _is_plan(o) and o.plan != Plan(),
        "these options are for engine: plan",
    ),
)


def _cpp_refusals(options: PlanOptions) -> Iterator[Refusal]:
    """What NVIDIA's C++ `tensorrtllm` backend does not support."""
    if options.lora is not None:
        yield Refusal(
            where=("lora",),
            reason="the C++ backend takes adapters as tensors per request, which the ensemble "
            "does not carry: use runtime: tensorrt_llm",
        )
    if options.mpi is not None:
        reason = "the C++ backend needs mpirun with several GPUs only, and gets it: leave it out"
        yield Refusal(where=("mpi",), reason=reason)
    if any(isinstance(device, str) for device in options.devices or ()):
        reason = "the C++ backend takes indices only (its gpu_device_ids)"
        yield Refusal(where=("devices",), reason=reason)
    if options.devices is not None and options.world_size > options.gpus_per_node:
        reason = "the C++ backend takes no devices for a model over several nodes"
        yield Refusal(where=("devices",), reason=reason)
    if options.hang_seconds != PlanOptions().hang_seconds:
        reason = "only the engine of runtime: tensorrt_llm watches for hangs: leave it out"
        yield Refusal(where=("hang_seconds",), reason=reason)
