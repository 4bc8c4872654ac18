"""From a model's entry to the steps that build it, or to all reasons why it cannot be built."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines import fetch
from build_engines.errors import BuildError
from build_engines.fetch import Fetch, Here
from build_engines.gpu import commands, memory, verify
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.device import Device
from build_engines.gpu.llm_args import LORA
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.problems import problems
from build_engines.gpu.speculation import DraftTarget, Eagle3
from build_engines.gpu.steps import CheckedWeights, ToolStep
from build_engines.gpu.toolkit import Toolkit
from build_engines.models_file import GpuEntry
from build_engines.step import Step
from build_engines.tables_step import Tables

ADAPTER = "adapter_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`engine`: the step whose folder is served. `beside`: folders by the name they get there."""

    steps: tuple[Step, ...]
    engine: Step
    tables: Tables
    beside: dict[str, Step]
    context_length: int
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256("\n".join(step.key for step in self.steps).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kitchen:
    """What a recipe is made with, beside the entry. `store`: where the model's steps go."""

    artifacts: Path
    store: Path
    toolkit: Toolkit
    device: Device


def weights_of(entry: GpuEntry, artifacts: Path) -> Fetch | Here:
    return fetch.step(entry.weights, artifacts)


def make(entry: GpuEntry, config: dict[str, Any], kitchen: Kitchen) -> Recipe:
    """
    Args:
        config: the model's config.json.

    Raises:
        BuildError: it cannot be built so; the message has every reason.
    """
    options, shape = entry.gpu, Architecture.read(config)
    if found := list(problems(options, shape, kitchen.toolkit, kitchen.device)):
        raise BuildError("; ".join(found))
    weights = weights_of(entry, kitchen.artifacts)
    beside = _beside(options, kitchen.artifacts)
    longest = options.max_seq_len or shape.positions
    context_length = min(longest, entry.context_length or longest)
    made = _engine(entry, shape, weights, beside, kitchen, longest)
    tables = Tables(
        kitchen.store,
        weights,
        model=config.get("text_config", config),
        context_length=context_length,
        kv_token_bytes=2 * shape.layers * shape.kv_heads * shape.head * memory.kv_bytes(options),
    )
    guide = _guide_info(entry, weights, kitchen)
    return Recipe(
        steps=(weights, *beside.values(), *made, *guide.values(), tables),
        engine=weights if isinstance(made[-1], CheckedWeights) else made[-1],
        tables=tables,
        beside={"weights": weights, **beside, **guide},
        context_length=context_length,
        notes=tuple(_notes(kitchen.device)),
    )


def _engine(
    entry: GpuEntry,
    shape: Architecture,
    weights: Step,
    beside: dict[str, Step],
    kitchen: Kitchen,
    longest: int,
) -> list[Step]:
    """The steps from the weights to what is served; the last one's folder is it."""
    options, toolkit = entry.gpu, kitchen.toolkit
    if options.engine == "pytorch" and options.quantization is None:
        return [CheckedWeights(kitchen.store, weights, verify.weights)]
    if options.engine == "pytorch":
        return [
            ToolStep(
                "quantized", kitchen.store, [weights], version=toolkit.version,
                command=lambda to, after: commands.quantize(toolkit, options, after[0], to),
                check=lambda folder: verify.checkpoint(folder, options),
            )
        ]  # fmt: skip
    shards = _shards(options, shape, weights, kitchen)
    loras = [step for name, step in beside.items() if name.startswith(LORA)]
    plan = ToolStep(
        "plan", kitchen.store, [shards, *loras], version=toolkit.version,
        about=[str(kitchen.device.architecture)],  # a plan runs on the kind it was built on
        command=lambda to, after: [
            *commands.build_plan(options, after[0], to, max_seq_len=longest),
            *commands.adapters(options, list(after[1:])),
        ],
        check=lambda folder: verify.plan(
            folder, options, version=toolkit.version, max_seq_len=longest
        ),
    )  # fmt: skip
    return [shards, plan]


def _shards(options: GpuOptions, shape: Architecture, weights: Step, kitchen: Kitchen) -> ToolStep:
    toolkit, converter = kitchen.toolkit, commands.CONVERTERS[shape.kind]

    def command(to: Path, after: Sequence[Path]) -> list[str]:
        if options.has_scales:
            return commands.quantize(toolkit, options, after[0], to)
        return commands.convert(toolkit, converter, options, after[0], to)

    return ToolStep(
        "checkpoint", kitchen.store, [weights], version=toolkit.version, command=command,
        check=lambda folder: verify.shards(folder, options),
    )  # fmt: skip


def _guide_info(entry: GpuEntry, weights: Step, kitchen: Kitchen) -> dict[str, Step]:
    """Only the C++ backend asks for it."""
    toolkit = kitchen.toolkit
    if entry.runtime != "tensorrtllm" or entry.gpu.guided_decoding == "off":
        return {}
    step = ToolStep(
        "guide_info", kitchen.store, [weights], version=toolkit.version,
        command=lambda to, after: commands.guide_info(toolkit, after[0], to),
        check=verify.guide_info,
    )  # fmt: skip
    return {"guide_info": step}


def _beside(options: GpuOptions, artifacts: Path) -> dict[str, Step]:
    """A draft model, and adapters."""
    found: dict[str, Step] = {}
    if isinstance(options.speculative, Eagle3 | DraftTarget):
        found["draft"] = fetch.step(options.speculative.draft, artifacts, name="draft")
    for name, source in options.lora.adapters.items() if options.lora is not None else ():
        found[LORA + name] = fetch.step(source, artifacts, name=f"adapter-{name}", needs=ADAPTER)
    return found


def _notes(device: Device) -> Iterator[str]:
    if device.memory_gb is None:
        yield "memory is not checked: there is no nvidia-smi here, and no memory_gb in models.yaml"
    if device.architecture is None:
        yield "the GPU's kind is not checked: no nvidia-smi here, no architecture in models.yaml"
