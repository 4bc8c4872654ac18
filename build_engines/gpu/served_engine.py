"""Derives from a model's entry which requests its engine can serve, see engine_limits."""

from __future__ import annotations

from typing import Literal

from packaging.version import Version

from build_engines.engine_limits import TrtllmEngine
from build_engines.facts import Facts
from build_engines.gpu.llm_args import SAMPLERS
from build_engines.models_file import GpuEntry


def of(entry: GpuEntry, facts: Facts, version: Version) -> TrtllmEngine:
    return TrtllmEngine(
        version=(version.major, version.minor),
        is_prerelease=version.is_prerelease,
        backend=_backend(entry),
        sampler=SAMPLERS[entry.gpu.sampler],
        end_tokens=len(facts.end_ids),
        has_guides=entry.gpu.guided_decoding != "off",
        has_adapters=entry.gpu.lora is not None,
        is_speculative=entry.gpu.speculative is not None,
    )


def _backend(entry: GpuEntry) -> Literal["pytorch", "tensorrt", "cpp"]:
    if entry.runtime == "tensorrtllm":
        return "cpp"
    return "pytorch" if entry.gpu.engine == "pytorch" else "tensorrt"
