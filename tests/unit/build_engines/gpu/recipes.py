"""Recipes of models for GPUs, made in a folder without a GPU or weights."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from packaging.version import Version

from build_engines.gpu import recipe
from build_engines.gpu.device import Device
from build_engines.gpu.recipe import Recipe
from build_engines.gpu.steps import BuildContext
from build_engines.gpu.toolkit import Toolkit
from build_engines.models_file import ModelsFile
from tests.fixtures.published import config

INT8_CACHE = {  # without what needs paged prompts
    "kv_cache": {"dtype": "int8", "reuse": False}, "chunked_prefill": False,
    "max_num_tokens": 131_072,
}  # fmt: skip
H100 = Device(memory_gb=80, architecture="hopper")


def context(folder: Path, version: str = "1.2.1", device: Device = H100) -> BuildContext:
    toolkit = Toolkit(version=Version(version), examples=Path("/examples"))
    store = folder / "artifacts" / "steps" / "m"
    return BuildContext(artifacts=folder / "artifacts", store=store, toolkit=toolkit, device=device)


def entry(folder: Path, runtime: str, gpu: dict, **common: object):
    weights = folder / "weights"
    weights.mkdir(exist_ok=True)
    given = {"weights": str(weights), "runtime": runtime, "gpu": gpu, **common}
    return ModelsFile.model_validate({"models": {"m": given}}).models["m"]


def make(
    folder: Path,
    name: str,
    gpu: dict,
    *,
    runtime: str = "tensorrt_llm",
    version: str = "1.2.1",
    device: Device = H100,
    **common: object,
) -> Recipe:
    made = entry(folder, runtime, gpu, **common)
    return recipe.make(made, config(name), context(folder, version, device))


def shown(found: Recipe) -> dict[str, str]:
    """Step -> its command, with the steps' folders by name, and python3 for the interpreter."""
    lines = {}
    for step in found.steps:
        for line in step.shown(step.folder):
            words = shlex.split(line)
            for each in found.steps:
                words = [word.replace(str(each.folder), f"<{each.name}>") for word in words]
            if step.name not in {"calibration", "check", "check_adapters", "tables"}:
                start = ["python3"] if words[0] == sys.executable else words[:1]
                lines[step.name] = " ".join([*start, *words[1:]])
    return lines


def keys(found: Recipe) -> dict[str, str]:
    return {step.name: step.key for step in found.steps}
