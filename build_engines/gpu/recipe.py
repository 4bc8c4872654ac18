"""Turns a model's entry into the steps that build it, or into all reasons against it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines import fetch
from build_engines.errors import BuildError
from build_engines.fetch import Fetch, Here
from build_engines.gpu import adapter, extra_arguments, llm_args, memory, refusals
from build_engines.gpu.architecture import OWN_FILE, STATIC_FP8, Architecture
from build_engines.gpu.device import Device
from build_engines.gpu.legacy import refusals as legacy_refusals
from build_engines.gpu.legacy import steps as legacy_steps
from build_engines.gpu.llm_args import LORA
from build_engines.gpu.options import AWQ, DraftTarget, Eagle3, GpuOptions, Mtp
from build_engines.gpu.steps import BuildContext, StepFactory
from build_engines.gpu.toolkit import Toolkit
from build_engines.json_files import read_object
from build_engines.models_file import GpuEntry
from build_engines.step import Step
from build_engines.tables_step import Tables
from build_engines.upstream import signatures
from build_engines.upstream.signatures import RecordedClasses


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """engine: the step whose folder is served. beside: further folders, by the name of their link.

    context_length: in tokens. notes: lines for the user about memory, defaults, and checks that
    were not possible.
    """

    steps: tuple[Step, ...]
    engine: Step
    tables: Tables
    beside: dict[str, Step]
    context_length: int
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256("\n".join(step.key for step in self.steps).encode()).hexdigest()


def weights_of(entry: GpuEntry, artifacts: Path) -> Fetch | Here:
    """
    Raises:
        BuildError: a local folder does not exist.
    """
    return fetch.step(entry.weights, artifacts)


def make(entry: GpuEntry, config: dict[str, Any], context: BuildContext) -> Recipe:
    """
    Args:
        config: the model's config.json.

    Raises:
        BuildError: the model cannot be built with these options; the message has every reason.
    """
    shape, unknown = known_shape(config)
    if shape is None and entry.gpu.engine == "plan":
        raise BuildError(unknown)
    options = memory.with_rows(shape, entry.gpu, memory_gb=context.device.memory_gb)
    entry = entry.model_copy(update={"gpu": options})
    text = config.get("text_config", config)
    positions = shape.positions if shape else text.get("max_position_embeddings") or 0
    found = [
        *_option_problems(options, context.toolkit, context.device),
        *_length_problems(options, positions),
    ]
    if shape:
        found += _problems(options, shape, context.toolkit, context.device)
    if found:
        raise BuildError("; ".join(found))
    weights = weights_of(entry, context.artifacts)
    longest = options.max_seq_len or positions
    factory = StepFactory(options=options, weights=weights, context=context)
    context_length = min(longest, entry.context_length or longest)
    tables = Tables(
        context.store,
        weights,
        model=text | ({"vocab_size": shape.vocabulary} if shape else {}),
        context_length=context_length,
        kv_token_bytes=memory.kv_token_bytes(shape, options) if shape else 0,
    )
    notes = _notes(entry, shape, context.device) if shape else [unknown]
    beside = _beside(options, context.artifacts)
    adapters = [step for name, step in beside.items() if name.startswith(LORA)]
    checked = factory.checked_adapters(adapters)
    served = (
        legacy_steps.served(factory, adapters, shape, longest=longest)
        if options.engine == "plan" and shape
        else factory.served()
    )
    if entry.runtime == "tensorrtllm" and options.guided_decoding != "off":
        beside["guide_info"] = legacy_steps.guide_info(factory)
    return Recipe(
        steps=(weights, factory.checked(), *beside.values(), *checked, *served, tables),
        engine=served[-1] if served else weights,
        tables=tables,
        beside={"weights": weights, **beside},
        context_length=context_length,
        notes=(*_unlisted(options, config), *notes),
    )


def known_shape(config: dict[str, Any]) -> tuple[Architecture | None, str]:
    """Or the note for a shape that is not known here: the engine may know it."""
    try:
        return Architecture.read(config), ""
    except BuildError as error:
        return None, f"sharding and memory are not checked: {error}"


def _beside(options: GpuOptions, artifacts: Path) -> dict[str, Step]:
    """The steps that fetch a draft model and adapters."""
    found: dict[str, Step] = {}
    if isinstance(options.speculative, Eagle3 | DraftTarget):
        found["draft"] = fetch.step(options.speculative.draft, artifacts, name="draft")
    for name, source in options.lora.adapters.items() if options.lora is not None else ():
        found[LORA + name] = fetch.step(
            source, artifacts, name=f"adapter-{name}", needs=adapter.CONFIG
        )
    return found


# Upstream's own list, of 2026: it is incomplete for other versions, so a model is not refused.
MODELS = Path(signatures.__file__).with_name("models.json")


def _unlisted(options: GpuOptions, config: dict[str, Any]) -> Iterator[str]:
    name = next(iter(config.get("architectures") or ()), None)
    if options.engine == "pytorch" and name not in {None, *read_object(MODELS)["architectures"]}:
        yield f"TensorRT-LLM's list of its PyTorch runtime's models has no {name}: it may not load"


def _notes(entry: GpuEntry, shape: Architecture, device: Device) -> Iterator[str]:
    options, max_tokens = entry.gpu, entry.default_max_tokens
    if options.engine == "plan":
        yield legacy_refusals.NOTICE
    is_on_hopper = device.architecture == "hopper" and options.engine == "pytorch"
    if shape.kind == "gpt_oss" and is_on_hopper and "moe_config" not in options.llm_args:
        yield "on Hopper, gpt-oss needs gpu.llm_args: {moe_config: {backend: TRITON}}"
    yield from memory.arithmetic(shape, options, memory_gb=device.memory_gb)
    if entry.sampling.max_tokens is None:
        yield (
            f"requests without max_tokens get {max_tokens:,} new tokens at most, the default of "
            "models on GPUs: set sampling.max_tokens in models.yaml to change it"
        )
    yield from memory.concurrency(shape, options, memory_gb=device.memory_gb, max_tokens=max_tokens)
    if device.memory_gb is None:
        yield "memory is not checked: nvidia-smi is missing, and models.yaml has no gpu.memory_gb"
    if device.architecture is None:
        yield (
            "the GPU's architecture is not checked: nvidia-smi is missing, and models.yaml has no "
            "gpu.architecture"
        )


def _option_problems(options: GpuOptions, toolkit: Toolkit, device: Device) -> Iterator[str]:
    """Why no model can be built with these options: version, GPU, arguments."""
    yield from toolkit.problems(options)
    if device.architecture is not None:
        yield from (r.reason for r in refusals.wrong_architecture(options, device.architecture))
    yield from _argument_problems(options, toolkit.version)


def _problems(
    options: GpuOptions, shape: Architecture, toolkit: Toolkit, device: Device
) -> Iterator[str]:
    """Why a model of this shape cannot be built with them."""
    if options.engine == "plan":
        yield from legacy_refusals.problems(options, shape, toolkit.version)
    yield from sharding_problems(shape, options)
    yield from _origin_problems(options, shape, toolkit.version)
    yield from _latent_problems(options, shape, device)
    if device.memory_gb is not None:
        yield from memory.problems(shape, options, memory_gb=device.memory_gb)


def _length_problems(options: GpuOptions, positions: int) -> Iterator[str]:
    longest = options.max_seq_len or positions
    if not longest:
        yield "config.json has no max_position_embeddings: set max_seq_len"
    elif positions and longest > positions:
        yield f"max_seq_len is {longest}, but the model supports {positions} positions only"
    if not options.chunked_prefill and options.max_num_tokens < longest:
        yield (
            f"without chunked_prefill a prompt of up to {longest} tokens must fit into one step of "
            f"max_num_tokens {options.max_num_tokens}: raise it, lower max_seq_len, or allow "
            "chunked_prefill"
        )


# The quant_method in config.json that TensorRT-LLM's PyTorch runtime reads: _torch/model_config.py
# at b35ac1b6 (1.2.0rc2), and at 008e0af8 (2026). It ignores others, and loads wrong numbers.
READ_INLINE: tuple[str, ...] = ("fp8", "mxfp4")
READ_INLINE_LATER = (
    *READ_INLINE, STATIC_FP8, "compressed-tensors", "modelopt", "modelopt_fp4", "mxfp8", "nvfp4",
)  # fmt: skip


def _origin_problems(options: GpuOptions, shape: Architecture, version: Version) -> Iterator[str]:
    native = shape.native_quantization
    if native is not None and options.quantization is not None:
        yield f"the weights are {native} already: leave out quantization {options.quantization}"
    if options.engine == "plan":
        return
    readable = READ_INLINE if version < llm_args.IS_1_3 else READ_INLINE_LATER
    if shape.quantized_in not in {None, OWN_FILE, *readable}:
        yield (
            f"config.json describes {shape.quantized_in} weights, which TensorRT-LLM {version} "
            f"would read as 16-bit weights: it knows {', '.join(readable)} there, and any in "
            f"{OWN_FILE}: take weights without quantization, or NVIDIA's quantized ones"
        )
    if options.kv_cache.dtype == "fp8" and shape.native_kv_cache not in {None, "fp8"}:
        yield f"the checkpoint's KV cache is {shape.native_kv_cache}: leave out kv_cache.dtype"
    if shape.is_mixture and options.quantization in AWQ:
        yield (
            f"TensorRT-LLM's PyTorch runtime has no {options.quantization} of experts as "
            "nvidia-modelopt writes it: take fp8 or nvfp4"
        )


def _latent_problems(options: GpuOptions, shape: Architecture, device: Device) -> Iterator[str]:
    """Latent attention, and the layers for multi-token prediction that come with it."""
    if isinstance(options.speculative, Mtp) and not shape.mtp_layers:
        yield (
            "the checkpoint has no layers for multi-token prediction (num_nextn_predict_layers in "
            "config.json): use another speculative.method, or leave out speculative"
        )
    if shape.latent is None:
        return
    if shape.kind == "deepseek_v2":  # its docs/source/models/supported-models.md at 00b6d5a2
        yield "TensorRT-LLM's PyTorch runtime has no DeepSeek-V2, only DeepSeek-V3 and its like"
    if options.quantization is not None and shape.native_quantization is None:
        yield "latent attention is not quantized here: take a checkpoint that is quantized already"
    if options.lora is not None:
        yield "TensorRT-LLM has no adapters for models with latent attention: leave out lora"
    silent = [
        name
        for name, is_on in (
            ("chunked_prefill", options.chunked_prefill),
            ("kv_cache.reuse", options.kv_cache.reuse),
        )
        if is_on and device.architecture in {"ampere", "ada"}
    ]
    if silent:  # upstream's py_executor_creator.py switches both off there, with a warning
        yield f"latent attention has {' and '.join(silent)} from Hopper on: set to false"


def _argument_problems(options: GpuOptions, version: Version) -> Iterator[str]:
    if not options.llm_args:
        return
    folders = {"weights": Path(), "draft": Path()}
    without = options.model_copy(update={"llm_args": {}})
    own = llm_args.of(without, folders, version=version, lora_modules={})
    record = RecordedClasses.read(signatures.record_of(version))
    yield from extra_arguments.problems(options.llm_args, own, record)


# Weights per scale: a GPU's part of a row must consist of whole blocks.
BLOCKS = {"int4_awq": 128, "w4a8_awq": 128, "nvfp4": 16}


def sharding_problems(shape: Architecture, options: GpuOptions) -> Iterator[str]:
    """The reasons, one line each. TensorRT-LLM pads the vocabulary, so that always fits."""
    tensor, pipeline = options.attention_ways, options.pipeline_parallel
    if shape.heads % tensor:
        yield _does_not_divide("tensor_parallel", tensor, shape.heads, "attention heads")
    if shape.latent is None and shape.kv_heads % tensor and tensor % shape.kv_heads:
        yield (
            f"tensor_parallel {tensor} does not fit the {shape.kv_heads} key-value heads: one must "
            "divide the other"
        )
    if options.attention_dp and not shape.is_mixture:
        yield (
            "attention_dp splits experts only, and this model has none: each GPU would hold all of "
            "it. Serve it on several GPUs as a pool of engines"
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
    name = options.quantization or shape.native_quantization
    block = BLOCKS.get(options.quantization or "", shape.weight_block)
    if block is None:
        return
    head = shape.head if shape.latent is None else shape.latent.value
    parts = {
        "intermediate size": shape.intermediate / tensor_ways(shape, options),
        "attention width": shape.heads * head / options.attention_ways,
    }
    for what, part in parts.items():
        if part % block:
            yield (
                f"{name} has blocks of {block} weights, and each GPU's part of the "
                f"{what} is {part:g}: use fewer GPUs"
            )


def tensor_ways(shape: Architecture, options: GpuOptions) -> int:
    """The number of GPUs over which one MLP, or one expert, is split."""
    if not shape.is_mixture:
        return options.tensor_parallel
    return options.tensor_parallel // options.expert_parallel


def _does_not_divide(name: str, ways: int, total: int, what: str) -> str:
    fitting = [str(n) for n in range(1, min(total, 64) + 1) if total % n == 0]
    return f"{name} {ways} does not divide the {total} {what}: {', '.join(fitting)} do"
