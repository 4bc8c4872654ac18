"""Checks whether a model of this shape can be split over that many GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from build_engines.gpu.architecture import Architecture
from build_engines.gpu.options import GpuOptions

# Weights per scale: a GPU's part of a row must consist of whole blocks.
BLOCKS = {"int4_awq": 128, "w4a8_awq": 128, "nvfp4": 16}


def problems(shape: Architecture, options: GpuOptions) -> Iterator[str]:
    """The reasons, one line each. TensorRT-LLM pads the vocabulary, so that always fits."""
    tensor, pipeline = options.tensor_parallel, options.pipeline_parallel
    if shape.heads % tensor:
        yield _does_not_divide("tensor_parallel", tensor, shape.heads, "attention heads")
    if shape.kv_heads % tensor and tensor % shape.kv_heads:
        yield (
            f"tensor_parallel {tensor} does not fit the {shape.kv_heads} key-value heads: one must "
            "divide the other"
        )
    if pipeline > shape.layers:
        yield f"pipeline_parallel {pipeline} is more than the {shape.layers} layers"
    yield from _expert_problems(shape, options)
    yield from _block_problems(shape, options)


def _expert_problems(shape: Architecture, options: GpuOptions) -> Iterator[str]:
    expert = options.expert_parallel
    if expert > 1 and not shape.is_mixture:
        yield f"expert_parallel {expert}, but the model has no experts: leave it out"
    elif expert > 1 and shape.experts % expert:
        yield _does_not_divide("expert_parallel", expert, shape.experts, "experts")
    ways = tensor_ways(shape, options)
    if shape.intermediate % ways:
        name = "tensor_parallel / expert_parallel" if shape.is_mixture else "tensor_parallel"
        yield _does_not_divide(name, ways, shape.intermediate, "intermediate size")


def _block_problems(shape: Architecture, options: GpuOptions) -> Iterator[str]:
    block = BLOCKS.get(options.quantization or "")
    if block is None:
        return
    parts = {
        "intermediate size": shape.intermediate / tensor_ways(shape, options),
        "attention width": shape.heads * shape.head / options.tensor_parallel,
    }
    for name, part in parts.items():
        if part % block:
            yield (
                f"{options.quantization} has blocks of {block} weights, and each GPU's part of the "
                f"{name} is {part:g}: use fewer GPUs"
            )


def tensor_ways(shape: Architecture, options: GpuOptions) -> int:
    """The number of GPUs over which one MLP, or one expert, is split."""
    if not shape.is_mixture:
        return options.tensor_parallel
    return options.tensor_parallel // options.expert_parallel


def _does_not_divide(name: str, ways: int, total: int, what: str) -> str:
    fitting = [str(n) for n in range(1, min(total, 64) + 1) if total % n == 0]
    return f"{name} {ways} does not divide the {total} {what}: {', '.join(fitting)} do"
