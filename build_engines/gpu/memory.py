"""Estimates the memory of one GPU: the weights, the buffers of a step, and the KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from build_engines.gpu.architecture import Architecture
from build_engines.gpu.options import GpuOptions, Mtp

# Bytes of one weight, including its share of the block's scale (AWQ: 16 bits for 128 weights, NVFP4
# and MXFP4: 8 bits for 16 and for 32).
WEIGHT_BYTES = {
    "fp8": 1.0,
    "mxfp8": 1 + 1 / 32,
    "int8_sq": 1.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5,
    "int4_awq": 0.5 + 2 / 128,
    "w4a8_awq": 0.5 + 2 / 128,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
}
KV_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5 + 1 / 16}
CONTEXT_BYTES = 1.5e9  # CUDA, NCCL and TensorRT-LLM's own buffers: 1 to 2 GB were seen
LEAST_CACHED_TOKENS = 256
# The KV cache is reserved in blocks: TensorRT-LLM's default tokens_per_block, and that of FlashMLA.
BLOCK_TOKENS, LATENT_BLOCK_TOKENS = 32, 64
PROMPT_TOKENS = 1024  # assumed when requests are counted
# For max_batch_size, requests are as in NVIDIA's published runs: a thousand tokens in, as many out.
# Powers of 2, as upstream's CUDA graphs; 2,048 is upstream's default (builder.py at 008b2b8d).
ROW_TOKENS, LEAST_ROWS, MOST_ROWS = 2048, 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes on the GPU that holds most.

    kv_token: keys and values of one token in all layers. kv_windowed_token: those in the layers
    that keep only the last `window` tokens. state: of a request in layers without attention.
    """

    weights: float
    step: float
    kv_token: float
    kv_windowed_token: float
    window: int
    block_tokens: int = BLOCK_TOKENS
    state: float = 0.0

    def sequence(self, tokens: int) -> float:
        """Bytes of KV cache and state for one request of that many tokens."""
        full = tokens * (self.kv_token - self.kv_windowed_token)
        return full + min(tokens, self.window) * self.kv_windowed_token + self.state

    def cache(self, memory: float, fraction: float) -> float:
        """Bytes of KV cache on a GPU with that many bytes of memory."""
        return fraction * (memory - self.weights - self.step)


def estimate(shape: Architecture, options: GpuOptions) -> Estimate:
    """As KVCacheManager in TensorRT-LLM's resource_manager.py (b35ac1b6) counts: latent attention
    has one vector for all heads, on each GPU, and attention_dp splits no heads.
    """
    windowed = shape.windowed_layers / max(1, shape.attention_layers)
    kv_token = _layers(shape, options) * _kv_numbers(shape, options) * kv_bytes(shape, options)
    return Estimate(
        weights=_weights(shape, options),
        step=CONTEXT_BYTES + _activations(shape, options),
        kv_token=kv_token,
        kv_windowed_token=kv_token * windowed,
        window=shape.window or 0,
        block_tokens=BLOCK_TOKENS if shape.latent is None else LATENT_BLOCK_TOKENS,
        state=shape.state_bytes / options.attention_ways / options.pipeline_parallel,
    )


def _layers(shape: Architecture, options: GpuOptions) -> int:
    """Layers with a KV cache on the GPU that has most: a drafting layer has one, too."""
    drafting = options.speculative.layers if isinstance(options.speculative, Mtp) else 0
    return math.ceil(shape.attention_layers / options.pipeline_parallel) + drafting


def _kv_numbers(shape: Architecture, options: GpuOptions) -> float:
    """Numbers of one token and layer on one GPU, which has one key-value head at least."""
    if shape.latent is not None:
        return shape.kv_numbers
    return shape.kv_numbers / min(options.attention_ways, shape.kv_heads)


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
    found = estimate(shape, options)
    each = admitted(found, options, memory_gb=memory_gb, tokens=length)
    fitting = each * options.attention_groups
    at_once = min(fitting, options.rows)
    yield (
        f"guaranteed_no_evict runs {at_once:,} requests of {length:,} tokens at once (an assumed "
        f"prompt of {PROMPT_TOKENS:,} and max_tokens {max_tokens:,}, at most the context): the KV "
        f"cache has room for {fitting:,}, max_batch_size allows {options.rows:,}"
    )


def with_rows(
    shape: Architecture | None, options: GpuOptions, *, memory_gb: float | None
) -> GpuOptions:
    """The options with the max_batch_size of a checkpoint for which models.yaml has none.

    shape, memory_gb: None if the model's shape, or the GPU, is unknown.
    """
    if options.engine == "plan" or "max_batch_size" in options.model_fields_set:
        return options
    rows = LEAST_ROWS
    is_known = shape is not None and shape.native_quantization in {None, *WEIGHT_BYTES}
    if memory_gb is not None and shape is not None and is_known:
        tokens = min(ROW_TOKENS, options.max_seq_len or shape.positions or ROW_TOKENS)
        found = estimate(shape, options)
        fitting = admitted(found, options, memory_gb=memory_gb, tokens=tokens)
        while rows < min(fitting, MOST_ROWS):
            rows *= 2
    return options.model_copy(update={"max_batch_size": min(rows, options.max_num_tokens)})


def admitted(found: Estimate, options: GpuOptions, *, memory_gb: float, tokens: int) -> int:
    """How many requests of that many tokens the KV cache of one GPU can reserve at once."""
    blocks = math.ceil(tokens / found.block_tokens)
    cache = found.cache(memory_gb * 1e9, options.kv_cache.fraction)
    return int(cache / found.sequence(blocks * found.block_tokens))


def kv_bytes(shape: Architecture, options: GpuOptions) -> float:
    """Bytes of one number in the KV cache; `auto` takes the type that the checkpoint names."""
    chosen = options.kv_cache.dtype
    return KV_BYTES.get((shape.native_kv_cache or "") if chosen == "auto" else chosen, 2.0)


def kv_token_bytes(shape: Architecture, options: GpuOptions) -> int:
    """The KV cache that one token takes in all layers, on all GPUs together."""
    return round(shape.attention_layers * shape.kv_numbers * kv_bytes(shape, options))


def _weights(shape: Architecture, options: GpuOptions) -> float:
    plain = 4.0 if options.dtype == "float32" else 2.0
    name = options.quantization or shape.native_quantization or ""
    quantized = WEIGHT_BYTES.get(name, plain)
    beside = plain if shape.only_experts else quantized
    attention = shape.attention_layers * (shape.head_parameters + _key_copy(shape))
    split = attention + shape.mixer_parameters + shape.mlp_parameters
    layers = beside * split / options.attention_ways
    layers += beside * shape.attention_layers * shape.compression_parameters
    layers += quantized * shape.expert_parameters / options.tensor_parallel
    share = math.ceil(shape.layers / options.pipeline_parallel) / shape.layers
    drafting = _drafting(shape, options, plain if name == "nvfp4" else quantized)
    return layers * share + drafting + plain * _table_weights(shape, options)


def _key_copy(shape: Architecture) -> int:
    """Latent attention keeps each head's keys a second time, transposed: k_b_proj_trans."""
    latent = shape.latent
    return 0 if latent is None else shape.heads * latent.kv_rank * latent.plain


def _drafting(shape: Architecture, options: GpuOptions, bytes_each: float) -> float:
    """Multi-token prediction, on the last pipeline stage; not quantized in NVFP4 checkpoints."""
    if not isinstance(options.speculative, Mtp):
        return 0.0
    experts, rest = shape.mtp_parameters
    return bytes_each * (experts / options.tensor_parallel + rest / options.attention_ways)


def _table_weights(shape: Architecture, options: GpuOptions) -> float:
    """Parameters of embedding and output layer, which are never quantized.

    In a plan, each GPU of the first pipeline stage holds the whole embedding. With attention_dp,
    each GPU holds both.
    """
    table = shape.vocabulary * shape.hidden
    head = table / options.attention_ways
    embedding = table if options.engine == "plan" else head
    if options.pipeline_parallel > 1:
        return max(embedding, head)
    return embedding if shape.tied else embedding + head


def _activations(shape: Architecture, options: GpuOptions) -> float:
    """Bytes of the widest layer's input and output for one step, and of the logits in 32 bits.

    With attention_dp, the experts get the tokens of all GPUs.
    """
    tokens = options.max_num_tokens
    mlp = 2 * shape.hidden + 3 * shape.intermediate / options.tensor_parallel
    widest = tokens * options.attention_groups * mlp
    if (latent := shape.latent) is not None:  # a prompt's queries, keys and values are unfolded
        head = 2 * (latent.plain + latent.rotary) + 2 * latent.value
        attention = 2 * shape.hidden + shape.heads * head / options.attention_ways
        widest = max(widest, tokens * attention)
    return 2 * widest + options.max_batch_size * shape.vocabulary * 4
