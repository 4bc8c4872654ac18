"""Estimates the memory of one GPU: the weights, the buffers of a step, and the KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from build_engines.gpu.architecture import Architecture
from build_engines.gpu.options import GpuOptions

# Bytes of one weight, including its share of the block's scale (AWQ: 16 bits for 128 weights, NVFP4
# and MXFP4: 8 bits for 16 and for 32).
WEIGHT_BYTES = {
    "fp8": 1.0,
    "int8_sq": 1.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5,
    "int4_awq": 0.5 + 2 / 128,
    "w4a8_awq": 0.5 + 2 / 128,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
}
ONLY_EXPERTS = ("mxfp4",)
CONTEXT_BYTES = 1.5e9  # CUDA, NCCL and TensorRT-LLM's own buffers: 1 to 2 GB were seen
LEAST_CACHED_TOKENS = 256
BLOCK_TOKENS = 32  # the KV cache is reserved in blocks; TensorRT-LLM's default tokens_per_block
PROMPT_TOKENS = 1024  # assumed when requests are counted
# For max_batch_size, requests are as in NVIDIA's published runs: a thousand tokens in, as many out.
# Powers of 2, as upstream's CUDA graphs; 2,048 is upstream's default (builder.py at 008b2b8d).
ROW_TOKENS, LEAST_ROWS, MOST_ROWS = 2048, 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes on the GPU that holds most.

    kv_token: keys and values of one token in all layers. kv_windowed_token: those in the layers
    that keep only the last `window` tokens.
    """

    weights: float
    step: float
    kv_token: float
    kv_windowed_token: float
    window: int

    def sequence(self, tokens: int) -> float:
        """Bytes of KV cache for one request of that many tokens."""
        full = tokens * (self.kv_token - self.kv_windowed_token)
        return full + min(tokens, self.window) * self.kv_windowed_token

    def cache(self, memory: float, fraction: float) -> float:
        """Bytes of KV cache on a GPU with that many bytes of memory."""
        return fraction * (memory - self.weights - self.step)


def estimate(shape: Architecture, options: GpuOptions) -> Estimate:
    kv_heads = max(1, shape.kv_heads / options.tensor_parallel)
    kv_layer = 2 * kv_heads * shape.head * kv_bytes(options)
    windowed = shape.windowed_layers / shape.layers
    kv_token = math.ceil(shape.layers / options.pipeline_parallel) * kv_layer
    return Estimate(
        weights=_weights(shape, options),
        step=CONTEXT_BYTES + _activations(shape, options),
        kv_token=kv_token,
        kv_windowed_token=kv_token * windowed,
        window=shape.window or 0,
    )


def problems(shape: Architecture, options: GpuOptions, *, memory_gb: float) -> Iterator[str]:
    """Why the weights, and the KV cache of one request of the full length, do not fit.

    Weights that were published in an unknown quantization are not checked.
    """
    if shape.native_quantization not in {None, *WEIGHT_BYTES}:
        return
    found = estimate(shape, options)
    cache = found.cache(memory_gb * 1e9, options.kv_cache.fraction)
    longest = options.max_seq_len or shape.positions
    if cache < found.sequence(LEAST_CACHED_TOKENS):
        needed = found.weights + found.step
        yield (
            f"each GPU needs about {needed / 1e9:.1f} GB before any KV cache, and has "
            f"{memory_gb:g}: split the model over more GPUs, or quantize it"
        )
    elif cache < found.sequence(longest):
        tokens = int(cache / found.kv_token)
        yield (
            f"max_seq_len {longest} takes {found.sequence(longest) / 1e9:.1f} GB of KV cache on "
            f"each GPU, and about {cache / 1e9:.1f} GB are left: set it to {tokens} at most, or "
            "split the model over more GPUs"
        )


def arithmetic(
    shape: Architecture, options: GpuOptions, *, memory_gb: float | None
) -> Iterator[str]:
    """The estimate in words, for a model that fits. memory_gb: None if the GPU is unknown."""
    if shape.native_quantization not in {None, *WEIGHT_BYTES}:
        yield f"memory is not estimated: {shape.native_quantization} weights are not known here"
        return
    found, fraction = estimate(shape, options), options.kv_cache.fraction
    weights_gb, step_gb = found.weights / 1e9, found.step / 1e9
    yield (
        f"memory of a GPU: {weights_gb:.1f} GB of weights, {step_gb:.1f} GB for CUDA, activations "
        f"and logits; one token of KV cache takes {found.kv_token:,.0f} bytes"
    )
    if memory_gb is None:
        return
    cache = found.cache(memory_gb * 1e9, fraction)
    longest = options.max_seq_len or shape.positions
    yield (
        f"{fraction:g} x ({memory_gb:g} - {weights_gb:.1f} - {step_gb:.1f}) = {cache / 1e9:.1f} GB "
        f"for the KV cache: about {cache / found.kv_token:,.0f} tokens, or "
        f"{cache / found.sequence(longest):.1f} requests of {longest:,} tokens"
    )


def concurrency(
    shape: Architecture, options: GpuOptions, *, memory_gb: float | None, max_tokens: int
) -> Iterator[str]:
    """How many requests run at once under guaranteed_no_evict, in words.

    This scheduler reserves the blocks of the prompt and of all tokens that a request may still
    generate (getRemainingBlocksToCompletion in TensorRT-LLM's scheduledBlocksManager.h).

    Args:
        max_tokens: new tokens of a request.
    """
    is_known = shape.native_quantization in {None, *WEIGHT_BYTES}
    if memory_gb is None or not is_known or options.scheduler != "guaranteed_no_evict":
        return
    length = min(PROMPT_TOKENS + max_tokens, options.max_seq_len or shape.positions)
    fitting = admitted(estimate(shape, options), options, memory_gb=memory_gb, tokens=length)
    at_once = min(fitting, options.max_batch_size)
    yield (
        f"guaranteed_no_evict runs {at_once:,} requests of {length:,} tokens at once (an assumed "
        f"prompt of {PROMPT_TOKENS:,} and max_tokens {max_tokens:,}, at most the context): the KV "
        f"cache has room for {fitting:,}, max_batch_size allows {options.max_batch_size:,}"
    )


def with_rows(shape: Architecture, options: GpuOptions, *, memory_gb: float | None) -> GpuOptions:
    """The options with the max_batch_size of a checkpoint for which models.yaml has none.

    memory_gb: None if the GPU is unknown.
    """
    if options.engine == "plan" or "max_batch_size" in options.model_fields_set:
        return options
    rows = LEAST_ROWS
    if memory_gb is not None and shape.native_quantization in {None, *WEIGHT_BYTES}:
        tokens = min(ROW_TOKENS, options.max_seq_len or shape.positions or ROW_TOKENS)
        found = estimate(shape, options)
        fitting = admitted(found, options, memory_gb=memory_gb, tokens=tokens)
        while rows < min(fitting, MOST_ROWS):
            rows *= 2
    return options.model_copy(update={"max_batch_size": min(rows, options.max_num_tokens)})


def admitted(found: Estimate, options: GpuOptions, *, memory_gb: float, tokens: int) -> int:
    """How many requests of that many tokens the KV cache can reserve at once."""
    blocks = math.ceil(tokens / BLOCK_TOKENS)
    cache = found.cache(memory_gb * 1e9, options.kv_cache.fraction)
    return int(cache / found.sequence(blocks * BLOCK_TOKENS))


def kv_bytes(options: GpuOptions) -> int:
    """Bytes of one number in the KV cache."""
    return 2 if options.kv_cache.dtype == "auto" else 1


def _weights(shape: Architecture, options: GpuOptions) -> float:
    plain = 4.0 if options.dtype == "float32" else 2.0
    name = options.quantization or shape.native_quantization or ""
    quantized = WEIGHT_BYTES.get(name, plain)
    beside = plain if name in ONLY_EXPERTS else quantized
    layers = beside * (shape.attention_parameters + shape.mlp_parameters)
    layers += quantized * shape.expert_parameters
    share = math.ceil(shape.layers / options.pipeline_parallel) / shape.layers
    return layers * share / options.tensor_parallel + plain * _table_weights(shape, options)


def _table_weights(shape: Architecture, options: GpuOptions) -> float:
    """Parameters of embedding and output layer, which are never quantized.

    In a plan, each GPU of the first pipeline stage holds the whole embedding.
    """
    table = shape.vocabulary * shape.hidden
    head = table / options.tensor_parallel
    embedding = table if options.engine == "plan" else head
    if options.pipeline_parallel > 1:
        return max(embedding, head)
    return embedding if shape.tied else embedding + head


def _activations(shape: Architecture, options: GpuOptions) -> float:
    """Bytes of the widest layer's input and output for one step, and of the logits in 32 bits."""
    width = 2 * shape.hidden + 3 * shape.intermediate / options.tensor_parallel
    logits = options.max_batch_size * shape.vocabulary * 4
    return 2 * options.max_num_tokens * width + logits
