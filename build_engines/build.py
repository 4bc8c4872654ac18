"""`triton-openai build`: models.yaml -> artifacts/. A second run does nothing; a change redoes it.

artifacts/<model>/ holds what is made from the weights, artifacts/model_repository/ what Triton
loads. A model's folder appears only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from build_engines import (
    kv_memory,
    onnx_export,
    onnx_folder,
    role_parameters,
    scripted_build,
    tokenizer_tables,
    triton_models,
)
from build_engines.errors import BuildError, UnservableFolder
from build_engines.facts import Facts
from build_engines.models_file import ModelEntry, ModelsFile

__all__ = ["BuildError", "UnservableFolder", "build_all", "is_built"]

LAYOUT = 6  # of artifacts/<model>/; a new number makes every model stale
KEY_FILE = "build.json"
HASHED_WHOLE_BYTES = 64_000_000
Say = Callable[[str], None]
Result = TypeVar("Result")


def build_all(models: ModelsFile, artifacts: Path, *, only: Collection[str] = (), say: Say) -> None:
    """Builds each model that is stale, then writes the Triton model repository of all built ones.

    Args:
        only: names to build; all when empty.
        say: told each step, one line at a time.

    Raises:
        UnservableFolder: a model cannot be built from its folder.
        BuildError: a name is unknown.
        OSError: the disk is full or a folder cannot be written.
    """
    if unknown := set(only) - set(models.models):
        raise BuildError(f"models.yaml has no model {sorted(unknown)[0]!r}")
    artifacts.mkdir(parents=True, exist_ok=True)
    for name, entry in models.models.items():
        if only and name not in only:
            continue
        try:
            if not is_built(name, entry, artifacts):
                _build(name, entry, artifacts, say)
        except BuildError as error:
            raise UnservableFolder(entry.weights, str(error)) from error
    _write_repository(models, artifacts, say)


def is_built(name: str, entry: ModelEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these weights with these options."""
    try:
        stored = json.loads((artifacts / name / KEY_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(stored == {"key": _key(name, entry)})


def _build(name: str, entry: ModelEntry, artifacts: Path, say: Say) -> None:
    key = _key(name, entry)
    unfinished = artifacts / f"{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    if entry.scripted is None:
        context_length = _make_onnx(name, entry, unfinished, say)
    else:
        say(f"{name}: making the tokenizer tables and the script")
        context_length = entry.context_length or scripted_build.CONTEXT_LENGTH
        script = entry.scripted.model_dump()
        _in_child(scripted_build.make, str(entry.weights), str(unfinished), context_length, script)
    (unfinished / KEY_FILE).write_text(json.dumps({"key": key}))
    shutil.rmtree(artifacts / name, ignore_errors=True)
    unfinished.rename(artifacts / name)
    say(f"{name}: built, with {context_length} tokens of context")


def _make_onnx(name: str, entry: ModelEntry, target: Path, say: Say) -> int:
    """Returns the context length, in tokens."""
    engine = target / "engine"
    if onnx_export.is_exported(entry.weights):
        say(f"{name}: taking the ONNX folder {entry.weights} as it is")
        engine.symlink_to(entry.weights)
    else:
        say(f"{name}: converting {entry.weights} to ONNX ({entry.onnx.precision})")
        log = target.with_name(f"{name}.build.log")
        onnx_export.export(entry.weights, engine, precision=entry.onnx.precision, log=log)
    checked = _in_child(onnx_folder.check, str(engine))
    say(f"{name}: making the tokenizer tables")
    context_length = min(checked.context_length, entry.context_length or checked.context_length)
    model = json.loads((engine / onnx_folder.CONFIG).read_text())["model"]
    _in_child(
        tokenizer_tables.make,
        str(entry.weights), model, str(target), context_length, checked.kv_token_bytes,
    )  # fmt: skip
    return context_length


def _in_child(function: Callable[..., Result], *args: object) -> Result:
    """Runs it in a fresh process, whose memory goes when it is done."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def _write_repository(models: ModelsFile, artifacts: Path, say: Say) -> None:
    """All built models, written beside the old repository and swapped in where they differ."""
    repository = artifacts / "model_repository"
    fresh = artifacts / "model_repository.unfinished"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name, entry in models.models.items():
        if is_built(name, entry, artifacts):
            facts = Facts.read(artifacts / name / "facts.json")
            kv_bytes = kv_memory.kv_bytes(entry, models=len(models.models))
            fitted = kv_memory.fitted(facts, kv_bytes)
            if fitted != facts:
                say(
                    f"{name}: {fitted.context_length} tokens of context are served: its KV cache "
                    f"of {kv_bytes / 1e6:.0f} MB holds no more"
                )
            triton_models.render(name, fresh, role_parameters.of(name, entry, fitted, kv_bytes))
    if _contents(fresh) == _contents(repository):
        shutil.rmtree(fresh)  # a server may be running from the old one
        return
    shutil.rmtree(repository, ignore_errors=True)
    fresh.rename(repository)


def _contents(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def _key(name: str, entry: ModelEntry) -> str:
    """Changes when the weights, the options that a build depends on, or the tools change."""
    if not entry.weights.is_dir():
        raise BuildError(f"model {name!r}: the weights folder {entry.weights} does not exist")
    digest = hashlib.sha256()
    options = [LAYOUT, entry.runtime, entry.onnx.precision, entry.context_length, entry.scripted]
    tools = [version("onnxruntime-genai"), version("xgrammar"), version("tokenizers")]
    digest.update(repr((options, tools)).encode())
    for path in sorted(p for p in entry.weights.rglob("*") if p.is_file()):
        stat = path.stat()
        digest.update(f"{path.relative_to(entry.weights)} {stat.st_size}\n".encode())
        if stat.st_size <= HASHED_WHOLE_BYTES:
            digest.update(path.read_bytes())
        else:
            digest.update(str(stat.st_mtime_ns).encode())
    return digest.hexdigest()
