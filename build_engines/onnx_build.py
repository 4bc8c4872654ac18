"""A model for the CPU: weights -> artifacts/<model>/, which appears only when it is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from build_engines import (
    fetch,
    folder_hash,
    onnx_export,
    onnx_folder,
    ready_tables,
    tokenizer_tables,
    tool,
    whole_folder,
)
from build_engines.models_file import OnnxEntry
from build_engines.step import Step
from build_engines.tables_step import LAYOUT, TOOLS, in_child, versions
from build_engines.tool import Say
from build_engines.whole_folder import Provenance


def is_built(name: str, entry: OnnxEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these weights with these options."""
    weights = fetch.step(entry.weights, artifacts)
    return weights.is_done and whole_folder.is_made(artifacts / name, _provenance(entry, weights))


def needs_tools(entry: OnnxEntry, artifacts: Path) -> bool:
    """Whether a build imports torch, transformers and onnxruntime-genai, or fetches the weights."""
    weights = fetch.step(entry.weights, artifacts)
    return not weights.is_done or not _is_ready(weights.folder)


def build(name: str, entry: OnnxEntry, artifacts: Path, say: Say) -> None:
    """
    Raises:
        BuildError: the model cannot be built or served.
    """

    def tell(line: str) -> None:
        say(f"{name}: {line}")

    source = fetch.step(entry.weights, artifacts)
    if not source.is_done:
        source.run(tell)
    with whole_folder.made(artifacts / name, _provenance(entry, source)) as target:
        _export(entry, source.folder, target, log=artifacts / f"{name}.build.log", say=tell)
        if _is_ready(source.folder):
            context_length = _copy_tables(entry, source.folder, target)
        else:
            context_length = _tables(entry, source.folder, target, tell)
    tell(f"built, with {context_length} tokens of context")


def shown(name: str, entry: OnnxEntry, artifacts: Path) -> Iterator[str]:
    """The commands that a build would run, and the files that it would write."""
    source, target = fetch.step(entry.weights, artifacts), artifacts / name
    if not source.is_done:
        yield from source.shown(source.folder)
    if source.is_done and onnx_export.is_exported(source.folder):
        yield f"link {target / 'engine'} to {source.folder}"
    else:
        command = onnx_export.command(
            source.folder, target / "engine", precision=entry.onnx.precision
        )
        yield tool.shown(command)
    names = (*tokenizer_tables.FILES, whole_folder.KEY_FILE)
    yield from (f"write {target / file}" for file in names)


def _export(entry: OnnxEntry, weights: Path, target: Path, *, log: Path, say: Say) -> None:
    engine = target / "engine"
    if onnx_export.is_exported(weights):
        say(f"using the ONNX folder {weights} as it is")
        engine.symlink_to(weights.resolve())
    else:
        say(f"converting {weights} to ONNX ({entry.onnx.precision})")
        onnx_export.export(weights, engine, precision=entry.onnx.precision, log=log, say=say)


def _copy_tables(entry: OnnxEntry, weights: Path, target: Path) -> int:
    """Returns the context length, in tokens."""
    facts = ready_tables.facts(weights)
    context_length = min(facts.context_length, entry.context_length or facts.context_length)
    ready_tables.copy(weights, target, replace(facts, context_length=context_length))
    return context_length


def _tables(entry: OnnxEntry, weights: Path, target: Path, say: Say) -> int:
    """Returns the context length, in tokens."""
    engine = target / "engine"
    checked = in_child(onnx_folder.check, str(engine))
    say("making the tokenizer tables")
    context_length = min(checked.context_length, entry.context_length or checked.context_length)
    model = json.loads((engine / onnx_folder.CONFIG).read_text())["model"]
    in_child(
        tokenizer_tables.make,
        str(weights), model, str(target), context_length, checked.kv_token_bytes,
    )  # fmt: skip
    return context_length


def _is_ready(weights: Path) -> bool:
    """Whether the folder has all that a build makes, as the shipped demo model has."""
    return onnx_export.is_exported(weights) and ready_tables.are_in(weights)


def _provenance(entry: OnnxEntry, weights: Step) -> Provenance:
    """The weights, the build's options, and the versions of the tools that it needs."""
    made_of = [
        entry.runtime,
        str(entry.context_length),
        str(LAYOUT),
        folder_hash.of(weights.folder),
    ]
    tools: dict[str, str | None] = {}
    if onnx_export.is_exported(weights.folder):
        made_of.append(str(weights.folder.resolve()))  # it is linked, so its place matters
    else:
        made_of.append(entry.onnx.precision)
        tools |= versions(["onnxruntime-genai"])
    if not _is_ready(weights.folder):
        tools |= versions(TOOLS)
    return Provenance(key=hashlib.sha256("\n".join(made_of).encode()).hexdigest(), tools=tools)
