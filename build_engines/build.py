"""`triton-openai build`: models.yaml -> artifacts/. A second run does nothing; a change redoes it.

artifacts/<model>/ holds what is made from the weights, artifacts/model_repository/ what Triton
loads. A model's folder appears only when it is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from build_engines import (
    embedding_build,
    engine_limits,
    onnx_build,
    role_parameters,
    scripted_build,
    triton_models,
)
from build_engines.errors import BuildError, UnservableFolder
from build_engines.facts import Facts
from build_engines.gpu import assembly, toolkit
from build_engines.gpu.toolkit import Toolkit
from build_engines.machine import memory_bytes
from build_engines.models_file import (
    BuildableEntry,
    BuiltEntry,
    EmbeddingEntry,
    GpuEntry,
    ModelsFile,
    OnnxEntry,
    ScriptedEntry,
    VllmEntry,
)
from build_engines.tool import Say
from build_engines.vllm import build as vllm_build

__all__ = ["BuildError", "UnservableFolder", "build_all", "is_built", "show_all"]
CPU_LACKS = engine_limits.LORA | engine_limits.IMAGES


def build_all(
    models: ModelsFile,
    artifacts: Path,
    *,
    only: Collection[str] = (),
    say: Say,
    tensorrt_llm: Toolkit | None = None,
) -> None:
    """Builds every stale model, then writes the Triton model repository for all built models.

    Args:
        only: names of the models to build; empty for all.
        say: called with one line per step.
        tensorrt_llm: its version; that of the installed package by default.

    Raises:
        UnservableFolder: a model's folder cannot be served.
        BuildError: a name is unknown.
        OSError: the disk is full or a folder cannot be written.
    """
    chosen = dict(_chosen(models, only))
    _say_remote(models, only, say)
    artifacts.mkdir(parents=True, exist_ok=True)
    with locked(artifacts, say):
        for name, entry in chosen.items():
            try:
                if not is_built(name, entry, artifacts, tensorrt_llm):
                    _build(name, entry, artifacts, say, tensorrt_llm)
            except BuildError as error:
                raise UnservableFolder(str(entry.weights), str(error)) from error
        _write_repository(models, artifacts, say, tensorrt_llm)


def needing_tools(models: ModelsFile, artifacts: Path, *, only: Collection[str] = ()) -> list[str]:
    """Names of the stale models whose build needs the build tools, installed or not.

    Models for GPUs are not among them: NVIDIA's container brings what their build needs.

    Raises:
        UnservableFolder: a model's folder is gone.
        BuildError: a name is unknown.
    """
    found = []
    for name, entry in _chosen(models, only):
        try:
            if _needs_tools(entry, artifacts) and not is_built(name, entry, artifacts):
                found.append(name)
        except BuildError as error:
            raise UnservableFolder(str(entry.weights), str(error)) from error
    return found


def _needs_tools(entry: BuildableEntry, artifacts: Path) -> bool:
    match entry:
        case GpuEntry():
            return False
        case OnnxEntry():
            return onnx_build.needs_tools(entry, artifacts)
        case ScriptedEntry():
            return scripted_build.needs_tools(entry, artifacts)
        case EmbeddingEntry():
            return not embedding_build.weights(entry, artifacts).is_done
        case VllmEntry():
            return vllm_build.needs_tools(entry, artifacts)


def show_all(
    models: ModelsFile,
    artifacts: Path,
    *,
    only: Collection[str] = (),
    say: Say,
    tensorrt_llm: Toolkit | None = None,
) -> None:
    """Prints the commands that `build_all` would run and the files that it would write.

    Raises:
        UnservableFolder: a model's folder cannot be served.
        BuildError: a name is unknown.
    """
    chosen = dict(_chosen(models, only))
    _say_remote(models, only, lambda line: say(f"# {line}"))
    for name, entry in chosen.items():
        try:
            if is_built(name, entry, artifacts, tensorrt_llm):
                say(f"# {name} is built")
            else:
                say(f"# {name}")
                _show(name, entry, artifacts, say, tensorrt_llm)
        except BuildError as error:
            raise UnservableFolder(str(entry.weights), str(error)) from error
        roles = () if isinstance(entry, EmbeddingEntry) else triton_models.ROLES
        for triton_name in (name, *(triton_models.role_name(name, role) for role in roles)):
            say(f"write {artifacts / 'model_repository' / triton_name}/")


def is_built(
    name: str, entry: BuildableEntry, artifacts: Path, tensorrt_llm: Toolkit | None = None
) -> bool:
    """Whether artifacts/<name>/ was built from these weights with these options.

    Raises:
        BuildError: the weights' folder is missing, or TensorRT-LLM is not installed.
    """
    match entry:
        case GpuEntry():
            if not (artifacts / name).exists():
                return False
            return assembly.is_built(name, entry, artifacts, tensorrt_llm or toolkit.installed())
        case OnnxEntry():
            return onnx_build.is_built(name, entry, artifacts)
        case ScriptedEntry():
            return scripted_build.is_built(name, entry, artifacts)
        case EmbeddingEntry():
            return embedding_build.is_built(name, entry, artifacts)
        case VllmEntry():
            return vllm_build.is_built(name, entry, artifacts)


def _chosen(models: ModelsFile, only: Collection[str]) -> Iterator[tuple[str, BuildableEntry]]:
    if unknown := set(only) - set(models.models):
        raise BuildError(f"models.yaml has no model {sorted(unknown)[0]!r}")
    return ((name, entry) for name, entry in models.built.items() if not only or name in only)


def _say_remote(models: ModelsFile, only: Collection[str], say: Say) -> None:
    for name in models.models:
        if name not in models.built and (not only or name in only):
            say(f"{name}: runtime remote, nothing to build: Triton servers of its pools have it")


def _build(
    name: str,
    entry: BuildableEntry,
    artifacts: Path,
    say: Say,
    tensorrt_llm: Toolkit | None,
) -> None:
    match entry:
        case GpuEntry():
            found = tensorrt_llm or toolkit.installed()
            assembly.build(name, entry, artifacts, found, say)
        case OnnxEntry():
            onnx_build.build(name, entry, artifacts, say)
        case ScriptedEntry():
            scripted_build.build(name, entry, artifacts, say)
        case EmbeddingEntry():
            embedding_build.build(name, entry, artifacts, say)
        case VllmEntry():
            vllm_build.build(name, entry, artifacts, say, machine_gb=memory_bytes() / 1e9)


def _show(
    name: str, entry: BuildableEntry, artifacts: Path, say: Say, tensorrt_llm: Toolkit | None
) -> None:
    match entry:
        case GpuEntry():
            assembly.show(name, entry, artifacts, tensorrt_llm or toolkit.installed(), say)
        case OnnxEntry():
            for line in onnx_build.shown(name, entry, artifacts):
                say(line)
        case ScriptedEntry():
            for line in scripted_build.shown(name, entry, artifacts):
                say(line)
        case EmbeddingEntry():
            for line in embedding_build.shown(name, entry, artifacts):
                say(line)
        case VllmEntry():
            for line in vllm_build.shown(name, entry, artifacts):
                say(line)


def _write_repository(
    models: ModelsFile, artifacts: Path, say: Say, tensorrt_llm: Toolkit | None
) -> None:
    """Writes all built models beside the old repository, and swaps in those that differ."""
    repository = artifacts / "model_repository"
    fresh = artifacts / "model_repository.unfinished"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name, entry in models.built.items():
        if not is_built(name, entry, artifacts, tensorrt_llm):
            continue
        match entry:
            case GpuEntry():
                version = (tensorrt_llm or toolkit.installed()).version
                assembly.render(name, entry, artifacts, fresh, version=version)
            case OnnxEntry():
                engines = [one for one in models.built.values() if isinstance(one, BuiltEntry)]
                kv_bytes = kv_cache_bytes(entry, models=len(engines))
                facts = Facts.read(artifacts / name / "facts.json")
                facts = _fitted(name, facts, kv_bytes, say)
                say(
                    f"{name}: up to {kv_bytes / 1e6:,.0f} MB for running rows and kept prefixes "
                    "(onnx.kv_cache_mb); prefixes are kept only in memory that is free"
                )
                parameters = role_parameters.on_cpu(name, entry, facts, kv_bytes)
                triton_models.render(name, fresh, parameters, without=CPU_LACKS)
            case ScriptedEntry():
                facts = Facts.read(artifacts / name / "facts.json")
                parameters = role_parameters.scripted(name, entry, facts)
                without = CPU_LACKS | engine_limits.BLOCKS
                triton_models.render(name, fresh, parameters, without=without)
            case EmbeddingEntry():
                given = embedding_build.parameters(name, artifacts)
                triton_models.render_embedding(name, fresh, given, entry.max_queue)
            case VllmEntry():
                facts = Facts.read(artifacts / name / "facts.json")
                parameters = role_parameters.on_vllm(name, entry, facts, artifacts / name)
                without = engine_limits.vllm_missing(
                    has_adapters=bool(entry.adapter_names),
                    is_speculative="speculative_config" in entry.vllm.engine_args,
                    reads_images=vllm_build.reads_images(artifacts / name),
                )
                triton_models.render(name, fresh, parameters, without=without)
    if _contents(fresh) == _contents(repository):
        shutil.rmtree(fresh)  # a running server may still use the old one
        return
    shutil.rmtree(repository, ignore_errors=True)
    fresh.rename(repository)


def _fitted(name: str, facts: Facts, kv_bytes: int, say: Say) -> Facts:
    fitted = fitted_to(facts, kv_bytes)
    if fitted != facts:
        say(
            f"{name}: {fitted.context_length} tokens of context are served: its KV cache "
            f"of {kv_bytes / 1e6:.0f} MB holds no more"
        )
    return fitted


def _contents(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@contextmanager
def locked(artifacts: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Locks the folder itself, and waits until no other process has it locked.

    The lock ends with the process that holds it.
    """
    folder = os.open(artifacts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds in {artifacts}: waiting until it has finished")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


SHARE_OF_MEMORY = 0.4  # the rest is for weights, Triton and the system
LEAST_CONTEXT = 256  # tokens


def kv_cache_bytes(entry: OnnxEntry, *, models: int) -> int:
    """The size that models.yaml sets, else this model's share of the machine's memory."""
    if entry.onnx.kv_cache_mb is not None:
        return entry.onnx.kv_cache_mb * 1_000_000
    return int(SHARE_OF_MEMORY * memory_bytes() / models)


def fitted_to(facts: Facts, kv_bytes: int) -> Facts:
    """The facts, with the context length cut to what one request can use of `kv_bytes`.

    Raises:
        BuildError: too little context would be left.
    """
    room = kv_bytes // facts.kv_token_bytes
    if room >= facts.context_length:
        return facts
    if room < LEAST_CONTEXT:
        raise BuildError(
            f"{kv_bytes} bytes of KV cache hold {room} tokens, {facts.kv_token_bytes} bytes each: "
            "raise onnx.kv_cache_mb in models.yaml"
        )
    return replace(facts, context_length=room)
