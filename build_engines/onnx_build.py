"""A model for the CPU: weights -> artifacts/<model>/, which appears only when it is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from triton_openai.build_engines import (
    fetch,
    folder_hash,
    onnx_export,
    onnx_folder,
    tokenizer_tables,
    tool,
    whole_folder,
)
from triton_openai.build_engines.models_file import OnnxEntry
from triton_openai.build_engines.step import Step
from triton_openai.build_engines.tables_step import in_child, tools
from triton_openai.build_engines.tool import Say


def is_built(name: str, entry: OnnxEntry, artifacts: Path) -> bool:
    """Whether artifacts/<name>/ was made from these weights with these options."""
    weights = fetch.step(entry.weights, artifacts)
    return weights.is_done and whole_folder.is_made(artifacts / name, _key(entry, weights))


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
    with whole_folder.made(artifacts / name, _key(entry, source)) as target:
        _export(entry, source.folder, target, log=artifacts / f"{name}.build.log", say=tell)
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
        say(f"taking the ONNX folder {weights} as it is")
        engine.symlink_to(weights.resolve())
    else:
        say(f"converting {weights} to ONNX ({entry.onnx.precision})")
        onnx_export.export(weights, engine, precision=entry.onnx.precision, log=log, say=say)


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


def _key(entry: OnnxEntry, weights: Step) -> str:
    """A hash of the weights, of the build's options, and of the tools' versions."""
    options = [entry.runtime, entry.onnx.precision, str(entry.context_length)]
    versions = [version("onnxruntime-genai"), *tools()]
    made_of = [*options, *versions, folder_hash.of(weights.folder)]
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()
