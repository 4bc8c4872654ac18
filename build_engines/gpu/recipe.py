"""Turns a model's entry into the steps that build it, or into all reasons against it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines import fetch
from build_engines.errors import BuildError
from build_engines.fetch import Fetch, Here
from build_engines.gpu import adapter, memory
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.device import Device
from build_engines.gpu.llm_args import LORA
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.problems import problems
from build_engines.gpu.speculation import DraftTarget, Eagle3
from build_engines.gpu.step_factory import BuildContext, StepFactory
from build_engines.models_file import GpuEntry
from build_engines.step import Step
from build_engines.tables_step import Tables


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
    options, shape = entry.gpu, Architecture.read(config)
    if found := list(problems(options, shape, context.toolkit, context.device)):
        raise BuildError("; ".join(found))
    weights = weights_of(entry, context.artifacts)
    longest = options.max_seq_len or shape.positions
    factory = StepFactory(
        options=options, shape=shape, weights=weights, context=context, longest=longest
    )
    context_length = min(longest, entry.context_length or longest)
    tables = Tables(
        context.store,
        weights,
        model=config.get("text_config", config),
        context_length=context_length,
        kv_token_bytes=2 * shape.layers * shape.kv_heads * shape.head * memory.kv_bytes(options),
    )
    beside = _beside(options, context.artifacts)
    adapters = [step for name, step in beside.items() if name.startswith(LORA)]
    checked, served = factory.checked_adapters(adapters), factory.served(adapters)
    if entry.runtime == "tensorrtllm" and options.guided_decoding != "off":
        beside["guide_info"] = factory.guide_info()
    return Recipe(
        steps=(weights, factory.checked(), *beside.values(), *checked, *served, tables),
        engine=served[-1] if served else weights,
        tables=tables,
        beside={"weights": weights, **beside},
        context_length=context_length,
        notes=tuple(_notes(entry, shape, context.device)),
    )


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


def _notes(entry: GpuEntry, shape: Architecture, device: Device) -> Iterator[str]:
    options, max_tokens = entry.gpu, entry.default_max_tokens
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
