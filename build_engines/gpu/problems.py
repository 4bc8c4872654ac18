"""Collects every reason why a model cannot be built: version, GPU, shape, memory."""

from __future__ import annotations

from collections.abc import Iterator

from build_engines.gpu import commands, memory, refusals, sharding
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.device import Device
from build_engines.gpu.options import AWQ, GpuOptions
from build_engines.gpu.toolkit import Toolkit


def problems(
    options: GpuOptions, shape: Architecture, toolkit: Toolkit, device: Device
) -> Iterator[str]:
    """The reasons, one line each."""
    yield from toolkit.problems(options)
    if device.architecture is not None:
        yield from (r.reason for r in refusals.wrong_architecture(options, device.architecture))
    yield from sharding.problems(shape, options)
    yield from _length_problems(options, shape)
    yield from _origin_problems(options, shape)
    if device.memory_gb is not None:
        yield from memory.problems(shape, options, memory_gb=device.memory_gb)


def _length_problems(options: GpuOptions, shape: Architecture) -> Iterator[str]:
    longest = options.max_seq_len or shape.positions
    if not longest:
        yield "config.json has no max_position_embeddings: set max_seq_len"
    elif shape.positions and longest > shape.positions:
        yield f"max_seq_len is {longest}, but the model supports {shape.positions} positions only"
    if not options.chunked_prefill and options.max_num_tokens < longest:
        yield (
            f"without chunked_prefill a prompt of up to {longest} tokens must fit into one step of "
            f"max_num_tokens {options.max_num_tokens}: raise it, lower max_seq_len, or allow "
            "chunked_prefill"
        )


def _origin_problems(options: GpuOptions, shape: Architecture) -> Iterator[str]:
    native = shape.native_quantization
    if native is not None and options.quantization is not None:
        yield f"the weights are {native} already: leave out quantization {options.quantization}"
    if options.engine != "plan":
        if shape.is_mixture and options.quantization in AWQ:
            yield (
                f"TensorRT-LLM's PyTorch runtime has no {options.quantization} of experts as "
                "nvidia-modelopt writes it: take fp8 or nvfp4"
            )
        return
    converter = commands.CONVERTERS.get(shape.kind)
    if converter is None:
        known = ", ".join(commands.CONVERTERS)
        yield f"engine plans support {known}, not {shape.kind}: use engine: pytorch"
    elif native is not None:
        yield f"engine plans need 16-bit weights, and these are {native}: use engine: pytorch"
    elif options.pipeline_parallel > 1 and not converter.can_pipeline and not options.has_scales:
        yield f"TensorRT-LLM's converter for {shape.kind} has no pipeline_parallel: leave it out"
