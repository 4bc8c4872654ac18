"""The build steps of an engine plan: each runs one of upstream's tools and checks the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build_engines.gpu.architecture import Architecture
from build_engines.gpu.legacy import commands, verify
from build_engines.gpu.steps import StepFactory, ToolStep
from build_engines.step import Step


def served(
    factory: StepFactory, adapters: Sequence[Step], shape: Architecture, *, longest: int
) -> list[Step]:
    """The steps from the weights to the plan.

    Args:
        longest: the most tokens of prompt and answer together.
    """
    shards = _shards(factory, shape)
    return [*factory.texts, shards, _plan(factory, shards, adapters, longest=longest)]


def guide_info(factory: StepFactory) -> ToolStep:
    """The C++ backend's table for guided decoding."""
    toolkit = factory.context.toolkit
    return ToolStep(
        "guide_info",
        factory.context.store,
        [factory.weights],
        about=[str(toolkit.version)],
        command=lambda to, after: commands.guide_info(toolkit, after[0], to),
        check=verify.guide_info,
    )


def _shards(factory: StepFactory, shape: Architecture) -> ToolStep:
    toolkit, options = factory.context.toolkit, factory.options
    converter = commands.CONVERTERS[shape.kind]

    def command(to: Path, after: Sequence[Path]) -> list[str]:
        if options.has_scales:
            texts = after[1] if factory.texts else None
            return commands.quantize(toolkit, options, after[0], texts, to)
        return commands.convert(toolkit, converter, options, after[0], to)

    return ToolStep(
        "checkpoint",
        factory.context.store,
        [factory.weights, *factory.texts],
        about=[str(toolkit.version)],
        command=command,
        check=lambda folder: verify.shards(folder, options),
    )


def _plan(
    factory: StepFactory, shards: Step, adapters: Sequence[Step], *, longest: int
) -> ToolStep:
    context, options = factory.context, factory.options
    version = context.toolkit.version

    def command(to: Path, after: Sequence[Path]) -> list[str]:
        found = commands.build_plan(options, after[0], to, max_seq_len=longest)
        return [*found, *commands.adapters(options, list(after[1:]))]

    return ToolStep(
        "plan",
        context.store,
        [shards, *adapters],
        # a plan runs on the kind of GPU on which it was built
        about=[str(version), str(context.device.architecture)],
        command=command,
        check=lambda folder: verify.plan(folder, options, version=version, max_seq_len=longest),
    )
