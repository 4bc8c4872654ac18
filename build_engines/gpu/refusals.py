"""Combinations of options that cannot work, and models that cannot share their GPUs, each with the
reason. No rule needs the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from build_engines.gpu import extra_arguments
from build_engines.gpu.options import (
    Calibration,
    GpuArchitecture,
    GpuOptions,
)

OLDEST_FOR: dict[str, GpuArchitecture] = {"nvfp4": "blackwell", "fp8": "ada", "w4a8_awq": "ada"}
_AGES: dict[GpuArchitecture, int] = {"ampere": 0, "ada": 1, "hopper": 2, "blackwell": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`where`: the path of the field inside the `gpu:` section."""

    where: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    where: tuple[str, ...]
    is_broken: Callable[[GpuOptions], bool]
    reason: str


def broken(rules: Sequence[Rule], options: GpuOptions) -> Iterator[Refusal]:
    return (
        Refusal(where=rule.where, reason=rule.reason) for rule in rules if rule.is_broken(options)
    )


def refusals(options: GpuOptions) -> Iterator[Refusal]:
    """Every rule that these options break, in the order of RULES."""
    yield from broken(RULES, options)
    yield from _device_refusals(options)
    for place, reason in extra_arguments.refused(
        options.llm_args, attention_dp=options.attention_dp
    ):
        yield Refusal(where=("llm_args", *filter(None, place.split("."))), reason=reason)
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


RULES = (
    Rule(
        ("calibration",),
        lambda o: o.calibration != Calibration() and not o.is_calibrated,
        "these options measure no texts: leave it out, or set a quantization that does",
    ),
    Rule(
        ("expert_parallel",),
        lambda o: o.tensor_parallel % o.expert_parallel != 0,
        "expert_parallel must divide tensor_parallel",
    ),
    Rule(
        ("attention_dp",),
        lambda o: o.attention_dp and o.tensor_parallel == 1,
        "it gives each of the tensor_parallel GPUs requests of its own, and there is one GPU only",
    ),
    Rule(
        ("max_num_tokens",),
        lambda o: o.max_num_tokens < o.max_batch_size,
        "a step holds one token of each request, so it must be at least max_batch_size",
    ),
    Rule(
        ("kv_cache", "host_offload_gb"),
        lambda o: o.kv_cache.host_offload_gb > 0 and not o.kv_cache.reuse,
        "blocks are offloaded only to be reused, and kv_cache.reuse is off",
    ),
    Rule(
        ("kv_cache", "event_buffer_max_size"),
        lambda o: o.kv_cache.event_buffer_max_size > 0 and (not o.kv_cache.reuse or o.attention_dp),
        "changes of the cache are reported with kv_cache.reuse on only, and not with attention_dp, "
        "where each GPU has a cache of its own",
    ),
    Rule(
        ("scheduler",),
        lambda o: o.scheduler == "max_utilization" and o.guided_decoding != "off",
        "max_utilization pauses requests, and after a pause TensorRT-LLM restarts a request's "
        "grammar (its issue 18891): use guaranteed_no_evict, or guided_decoding: off",
    ),
    Rule(
        ("mpi",),
        lambda o: o.mpi == "single_process" and o.world_size > 1,
        "single_process is for one GPU: use mpirun or spawn",
    ),
    Rule(
        ("mpi",),
        lambda o: o.mpi not in {None, "mpirun"} and o.world_size > o.gpus_per_node,
        "a model over several nodes is always started by mpirun: leave it out",
    ),
    Rule(
        ("sampler",),
        lambda o: o.speculative is not None and o.sampler is not None,
        "speculative decoding chooses its own sampler: leave it out",
    ),
    Rule(
        ("speculative",),
        lambda o: o.engine == "pytorch" and o.speculative is not None and o.pipeline_parallel > 1,
        "the PyTorch runtime does not combine speculative decoding with pipeline_parallel "
        "(TensorRT-LLM's issue 9009): leave out one",
    ),
    Rule(
        ("lora",),
        lambda o: o.engine == "pytorch" and o.lora is not None and o.speculative is not None,
        "the PyTorch runtime cannot combine speculative decoding with adapters: leave out one",
    ),
)


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
        "Name other GPUs in devices, or lower gpu.kv_cache.fraction (with vLLM "
        "vllm.gpu_memory_utilization)"
    )
