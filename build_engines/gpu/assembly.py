"""Builds a model for GPUs: the steps in artifacts/steps/<model>/, then artifacts/<model>/.

The model's folder holds links to the steps' folders, and appears only when all steps are done.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from packaging.version import Version

from build_engines import fetch, role_parameters, step, triton_models
from build_engines.facts import Facts
from build_engines.gpu import recipe
from build_engines.gpu.device import Device
from build_engines.gpu.recipe import Recipe
from build_engines.gpu.steps import BuildContext
from build_engines.gpu.toolkit import Toolkit
from build_engines.models_file import GpuEntry
from build_engines.step import Step
from build_engines.tool import Say

KEY_FILE = "build.json"


def is_built(name: str, entry: GpuEntry, artifacts: Path, toolkit: Toolkit) -> bool:
    """Whether artifacts/<name>/ was built from these weights, with these options and this version.

    Raises:
        BuildError: as for `build`.
    """
    weights = recipe.weights_of(entry, artifacts)
    if not weights.is_done:
        return False
    found = _recipe(name, entry, artifacts, toolkit, weights)
    return found is not None and _key(artifacts / name) == found.key


def build(name: str, entry: GpuEntry, artifacts: Path, toolkit: Toolkit, say: Say) -> None:
    """Runs the steps that are not done, and assembles the model's folder.

    Raises:
        BuildError: these options cannot be built, or a tool failed; finished steps are kept.
    """

    def tell(line: str) -> None:
        say(f"{name}: {line}")

    weights = recipe.weights_of(entry, artifacts)
    found = _recipe(name, entry, artifacts, toolkit, weights)
    if found is None:  # config.json is inside the archive
        step.run([weights], tell)
        found = _recipe(name, entry, artifacts, toolkit, weights)
        assert found is not None
    for note in found.notes:
        tell(note)
    step.run(found.steps, tell)
    _assemble(artifacts / name, found)
    step.sweep(found.steps, _store(name, artifacts))
    tell(f"built, with {found.context_length} tokens of context")


def show(name: str, entry: GpuEntry, artifacts: Path, toolkit: Toolkit, say: Say) -> None:
    """Prints each command that `build` would run, and each file that it would write.

    Raises:
        BuildError: these options cannot be built.
    """
    weights = recipe.weights_of(entry, artifacts)
    found = _recipe(name, entry, artifacts, toolkit, weights)
    if found is None:
        step.show([weights], say)
        say("# the rest depends on the config.json in that archive")
        return
    for note in found.notes:
        say(f"# {note}")
    step.show(found.steps, say)
    for link, target in _links(found).items():
        say(f"link {artifacts / name / link} to {target.folder}")
    say(f"write {artifacts / name / KEY_FILE}")


def render(
    name: str, entry: GpuEntry, artifacts: Path, repository: Path, *, version: Version
) -> None:
    """Writes the Triton models. version: the TensorRT-LLM that built the engine."""
    folder = artifacts / name
    facts = Facts.read(folder / "facts.json")
    triton_models.render(
        name,
        repository,
        role_parameters.on_gpus(
            name,
            entry,
            facts,
            folder,
            version=version,
            memory_gb=Device.of(entry.gpu).memory_gb,
        ),
        engine="tensorrt_llm" if entry.runtime == "tensorrtllm" else "engine",
        without=role_parameters.served_engine(entry, facts, version).missing(),
    )


def _recipe(
    name: str,
    entry: GpuEntry,
    artifacts: Path,
    toolkit: Toolkit,
    weights: fetch.Fetch | fetch.Here,
) -> Recipe | None:
    config = fetch.config(weights)
    if config is None:
        return None
    context = BuildContext(
        artifacts=artifacts,
        store=_store(name, artifacts),
        toolkit=toolkit,
        device=Device.of(entry.gpu),
    )
    return recipe.make(entry, config, context)


def _assemble(folder: Path, found: Recipe) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(found.tables.folder, unfinished)
    for name, target in _links(found).items():
        link = unfinished / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(_pointer(target.folder.resolve(), link.parent.resolve(), folder.parent))
    (unfinished / KEY_FILE).write_text(json.dumps({"key": found.key}))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def _pointer(target: Path, start: Path, artifacts: Path) -> Path:
    """A relative path if the target is inside artifacts/, so that artifacts/ can be moved."""
    if target.is_relative_to(artifacts.resolve()):
        return Path(os.path.relpath(target, start))
    return target


def _links(found: Recipe) -> dict[str, Step]:
    return {"engine": found.engine, **found.beside}


def _store(name: str, artifacts: Path) -> Path:
    return artifacts / "steps" / name


def _key(folder: Path) -> str | None:
    try:
        stored = json.loads((folder / KEY_FILE).read_text())
    except (OSError, ValueError):
        return None
    return str(stored.get("key")) if isinstance(stored, dict) else None
