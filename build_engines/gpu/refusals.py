"""Combinations of options that cannot work, and models that cannot share their GPUs, each with the
reason. No rule needs the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from build_engines.gpu.options import (
    AWQ,
    AWQ_SAMPLES,
    PLAN_LORAS,
    Calibration,
    GpuArchitecture,
    GpuOptions,
    Plan,
    PlanOptions,
)

PYTORCH_READS = ("fp8", "nvfp4", "int4_awq", "w4a8_awq")
OLDEST_FOR: dict[str, GpuArchitecture] = {"nvfp4": "blackwell", "fp8": "ada", "w4a8_awq": "ada"}
_AGES: dict[GpuArchitecture, int] = {"ampere": 0, "ada": 1, "hopper": 2, "blackwell": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`where`: the path of the field inside the `gpu:` section."""

    where: tuple[str, ...]
    reason: str


def refusals(options: GpuOptions) -> Iterator[Refusal]:
    """Every rule that these options break, in the order of RULES."""
    for rule in RULES:
        if rule.is_broken(options):
            yield Refusal(where=rule.where, reason=rule.reason)
    yield from _device_refusals(options)
    if options.architecture is not None:
        yield from wrong_architecture(options, options.architecture)


def wrong_architecture(options: GpuOptions, found: GpuArchitecture) -> Iterator[Refusal]:
    """The number formats that this GPU does not support (Model-Optimizer's support matrix)."""
    wanted = {
        ("quantization",): options.quantization or "",
        ("kv_cache", "dtype"): options.kv_cache.dtype,
    }
    for where, name in wanted.items():
        oldest = OLDEST_FOR.get(name)
        if oldest is not None and _AGES[found] < _AGES[oldest]:
            reason = (
                f"{name} needs {oldest.capitalize()} or later, this GPU is {found.capitalize()}"
            )
            yield Refusal(where=where, reason=reason)


def _device_refusals(options: GpuOptions) -> Iterator[Refusal]:
    where, devices = ("devices",), options.devices or ()
    if not devices:
        return
    if len(devices) != options.node_size:
        reason = (
            f"names {len(devices)} GPUs, but the model needs {options.node_size} on a node: "
            f"tensor_parallel {options.tensor_parallel} x pipeline_parallel "
            f"{options.pipeline_parallel}, at most gpus_per_node {options.gpus_per_node}"
        )
        yield Refusal(where=where, reason=reason)
    if len(set(devices)) < len(devices):
        yield Refusal(where=where, reason="names a GPU twice")
    if len({type(device) for device in devices}) > 1:
        yield Refusal(where=where, reason="mixes indices and UUIDs: use one kind")
    if len(devices) > 1 and any(str(device).startswith("MIG-") for device in devices):
        yield Refusal(where=where, reason="CUDA shows a process one MIG instance only: name one")


@dataclass(frozen=True, slots=True)
class _Rule:
    where: tuple[str, ...]
    is_broken: Callable[[GpuOptions], bool]
    reason: str


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
    return PLAN_LORAS if options.lora is None else options.lora.max_loras


def _method(options: GpuOptions) -> str | None:
    return None if options.speculative is None else options.speculative.method


RULES = (
    _Rule(
        ("quantization",),
        lambda o: not _is_plan(o) and o.quantization in {"int8_sq", "int8_wo", "int4_wo"},
        f"TensorRT-LLM's PyTorch runtime reads {', '.join(PYTORCH_READS)} as nvidia-modelopt "
        "writes them: take one of them, or engine: plan",
    ),
    _Rule(
        ("calibration",),
        lambda o: o.calibration != Calibration() and not o.is_calibrated,
        "these options measure no texts: leave it out, or set a quantization that does",
    ),
    _Rule(
        ("calibration", "samples"),
        lambda o: _is_plan(o) and o.quantization in AWQ and o.calibration_samples > AWQ_SAMPLES,
        f"TensorRT-LLM's quantize.py measures {AWQ_SAMPLES} texts for AWQ at most: leave it out",
    ),
    _Rule(
        ("expert_parallel",),
        lambda o: o.tensor_parallel % o.expert_parallel != 0,
        "expert_parallel must divide tensor_parallel",
    ),
    _Rule(
        ("expert_parallel",),
        lambda o: _is_plan(o) and o.expert_parallel > 1 and o.has_scales,
        "TensorRT-LLM's quantize.py shards experts by tensor only: leave out expert_parallel, the "
        "quantization, or engine: plan",
    ),
    _Rule(
        ("max_num_tokens",),
        lambda o: o.max_num_tokens < o.max_batch_size,
        "a step holds one token of each request, so it must be at least max_batch_size",
    ),
    _Rule(
        ("kv_cache", "dtype"),
        lambda o: not _is_plan(o) and o.kv_cache.dtype == "int8",
        "the PyTorch runtime has no int8 KV cache: use fp8, or engine: plan",
    ),
    _Rule(
        ("kv_cache", "dtype"),
        lambda o: _is_plan(o) and not _pages_prompts(o) and (o.chunked_prefill or o.kv_cache.reuse),
        "chunked_prefill and kv_cache.reuse need paged attention over prompts. A plan has it only "
        "with dtype auto, or with fp8 and weights in fp8, w4a8_awq or nvfp4: set both to false",
    ),
    _Rule(
        ("kv_cache", "host_offload_gb"),
        lambda o: o.kv_cache.host_offload_gb > 0 and not o.kv_cache.reuse,
        "blocks are offloaded only to be reused, and kv_cache.reuse is off",
    ),
    _Rule(
        ("kv_cache", "event_buffer_max_size"),
        lambda o: o.kv_cache.event_buffer_max_size > 0 and (_is_plan(o) or not o.kv_cache.reuse),
        "changes of the cache are reported by the PyTorch runtime, with kv_cache.reuse on",
    ),
    _Rule(
        ("guided_decoding",),
        lambda o: _is_plan(o) and o.guided_decoding == "llguidance",
        "llguidance works with the PyTorch runtime only: use xgrammar",
    ),
    _Rule(
        ("scheduler",),
        lambda o: o.scheduler == "max_utilization" and o.guided_decoding != "off",
        "max_utilization pauses requests, and after a pause TensorRT-LLM restarts a request's "
        "grammar (its issue 18891): use guaranteed_no_evict, or guided_decoding: off",
    ),
    _Rule(
        ("iteration_stats",),
        lambda o: _is_plan(o) and not o.iteration_stats,
        "this switch is for the PyTorch runtime; engine plans keep the last 1,000 iterations only",
    ),
    _Rule(
        ("mpi",),
        lambda o: o.mpi == "single_process" and o.world_size > 1,
        "single_process is for one GPU: use mpirun or spawn",
    ),
    _Rule(
        ("mpi",),
        lambda o: o.mpi not in {None, "mpirun"} and o.world_size > o.gpus_per_node,
        "a model over several nodes is always started by mpirun: leave it out",
    ),
    _Rule(
        ("sampler",),
        lambda o: _is_plan(o) and o.sampler == "torch",
        "only the PyTorch runtime has this sampler: leave it out, or use engine: pytorch",
    ),
    _Rule(
        ("sampler",),
        lambda o: o.speculative is not None and o.sampler == "torch",
        "speculative decoding chooses its own sampler: leave it out",
    ),
    _Rule(
        ("speculative", "method"),
        lambda o: _is_plan(o) and _method(o) not in {None, "lookahead"},
        "plans support lookahead only: use it, or engine: pytorch (runtime: tensorrt_llm)",
    ),
    _Rule(
        ("speculative", "method"),
        lambda o: not _is_plan(o) and _method(o) == "lookahead",
        "the PyTorch runtime has no lookahead decoding: use ngram, or engine: plan",
    ),
    _Rule(
        ("lora",),
        lambda o: not _is_plan(o) and o.lora is not None and o.speculative is not None,
        "the PyTorch runtime cannot combine speculative decoding with adapters: leave out one",
    ),
    _Rule(
        ("lora", "adapters"),
        lambda o: _is_plan(o) and _adapters(o) > PLAN_LORAS,
        f"an engine plan holds {PLAN_LORAS} adapters: use fewer, or engine: pytorch",
    ),
    _Rule(
        ("lora", "max_loras"),
        lambda o: _is_plan(o) and _max_loras(o) != PLAN_LORAS,
        f"an engine plan holds {PLAN_LORAS}: leave it out, or use engine: pytorch",
    ),
    _Rule(
        ("plan", "gemm_plugin"),
        lambda o: o.plan.gemm_plugin == "auto" and o.quantization == "fp8",
        "gemm_plugin auto is for float16 and bfloat16: with fp8 it must be off",
    ),
    _Rule(
        ("plan",),
        lambda o: not _is_plan(o) and o.plan != Plan(),
        "these options are for engine: plan",
    ),
)


def plan_refusals(options: PlanOptions) -> Iterator[Refusal]:
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


def sharing_conflicts(models: Mapping[str, GpuOptions]) -> Iterator[tuple[str, str]]:
    """The name of the first model on each GPU that is claimed too often, and the reason.

    Each model takes its `kv_cache.fraction` of the memory that is free when it has loaded its
    weights, so the fractions of the models on one GPU may add up to at most one.

    An index and a UUID count as two GPUs, because only nvidia-smi can tell that they are the same:
    `doctor --gpu` replaces UUIDs by indices first.
    """
    reported: set[tuple[str, ...]] = set()
    for device in sorted(
        {device for options in models.values() for device in options.node_devices}
    ):
        users = {name: o for name, o in models.items() if device in o.node_devices}
        total = math.fsum(options.kv_cache.fraction for options in users.values())
        if len(users) == 1 or total <= 1 or tuple(users) in reported:
            continue
        reported.add(tuple(users))
        yield next(iter(users)), _reason(device, users, total)


def _reason(device: str, users: Mapping[str, GpuOptions], total: float) -> str:
    shares = ", ".join(
        f"{name} takes {options.kv_cache.fraction:g}"
        + (" (without devices, it uses the first GPUs)" if options.devices is None else "")
        for name, options in users.items()
    )
    return (
        f"the models on GPU {device} claim {total:g} of its memory, more than 1: {shares}. "
        "Name other GPUs in gpu.devices, or lower gpu.kv_cache.fraction"
    )
