"""Serves one model folder, or GGUF file, without a models.yaml, under a name that it has itself.

Published folders carry the name, such as `phi-3.5-mini`; others get one of architecture and size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError, MissingPackage, UnservableFolder, in_words
from build_engines.gguf_file import GgufFile
from build_engines.gpu.architecture import Architecture
from build_engines.json_files import read_object
from build_engines.models_file import ModelsFile, OnnxEntry
from build_engines.onnx_folder import CONFIG, Graph
from build_engines.weights import LocalFolder, gguf_in

HELD = ("*.safetensors", "*.bin")  # the weights of a Hugging Face folder
TENSORRT_LLM = frozenset({"architecture", "pretrained_config"})  # of a checkpoint; of an engine
_ADDRESS = re.compile(r"\w+:/")
DEPTHS = ("*", "*/*", "*/*/*")
LISTED_AT_MOST = 5
# Phi-3.5-mini-instruct-onnx, phi3-mini-4k-instruct-….onnx, Llama-3.2-1B, Qwen2.5-0.5B, gemma-2-2b
_PUBLISHED = re.compile(
    r"(?<![a-z])(phi|llama|qwen|mistral|gemma)[-_]?(\d+(?:\.\d+)?(?![\d.]*[bmk]))?(?:[-_]instruct)?"
    r"[-_](mini|small|medium|\d+(?:\.\d+)?[bm])(?![a-z0-9])"
)
_JOINED = ("qwen",)  # written without a dash before the version: qwen2.5-0.5b
BILLIONS_FROM = 450_000_000  # Qwen2-0.5B has 494 million


def models_of(folder: Path, name: str | None) -> ModelsFile:
    """The ModelsFile for one ONNX or Hugging Face folder, or GGUF file; by default its name is
    derived.

    Raises:
        UnservableFolder: it holds no model.
        MissingPackage: its name cannot be worked out without the build tools.
    """
    if _ADDRESS.match(text := str(folder)):  # a Path has one slash of two
        raise UnservableFolder(
            text.replace("/", "//", 1),
            "it is an address, and MODEL_PATH takes a folder or a GGUF file: give the address to "
            "`weights` in models.yaml",
        )
    weights = folder.expanduser().absolute()
    if (reason := LocalFolder(weights).wrong_format(reads_gguf=True)) is not None:
        raise UnservableFolder(folder, reason)
    is_exported, is_gguf = (weights / CONFIG).is_file(), gguf_in(weights) is not None
    if not is_gguf and not is_exported and not (weights / "config.json").is_file():
        raise UnservableFolder(folder, _no_model(weights))
    try:
        name = name or public_name(weights)
    except MissingPackage:
        raise
    except BuildError as error:
        raise UnservableFolder(folder, str(error)) from error
    if not is_gguf and not is_exported and not any(any(weights.glob(each)) for each in HELD):
        raise UnservableFolder(folder, f"it has no weights: {' or '.join(HELD)}")
    return ModelsFile(models={name: OnnxEntry(weights=LocalFolder(weights))})


def _no_model(folder: Path) -> str:
    """The error for a folder without a model. Names the variants that an ONNX repository holds."""
    found = [path.parent for depth in DEPTHS for path in folder.glob(f"{depth}/{CONFIG}")]
    inside = sorted(found)[:LISTED_AT_MOST]
    hint = f"; take one of {', '.join(map(str, inside))}" if inside else ""
    return f"it has no {CONFIG} and no config.json{hint}"


def public_name(folder: Path) -> str:
    """The public name of the model in `folder`, such as `phi-3.5-mini`.

    Raises:
        BuildError: the folder's configs do not say which model it is.
    """
    if gguf_in(folder) is not None:
        return _gguf_name(GgufFile.open(folder))
    kind, exported = _kind(folder)
    for text in _names(folder, exported):
        if name := _published(text, kind):
            return name
    return f"{kind.removesuffix('_text')}-{size_name(_parameters(folder, exported))}"


def _gguf_name(file: GgufFile) -> str:
    kind = file.architecture
    for text in (str(file.get("general.name", "")), *reversed(file.path.resolve().parts)):
        if name := _published(text.replace(" ", "-"), kind):
            return name
    return f"{kind}-{size_name(file.size)}"


def size_name(parameters: int) -> str:
    """A parameter count as model names write it: `3.5m`, `135m`, `0.5b`, `8b`."""
    if parameters >= BILLIONS_FROM:
        return f"{parameters / 1e9:.1f}".removesuffix(".0") + "b"
    millions = parameters / 1e6
    text = f"{millions:.1f}" if millions < 10 else f"{millions:.0f}"
    return text.removesuffix(".0") + "m"


def _kind(folder: Path) -> tuple[str, dict[str, Any] | None]:
    """The architecture, and genai_config.json's model section of an ONNX folder."""
    is_exported = (folder / CONFIG).is_file()
    file = CONFIG if is_exported else "config.json"
    try:
        config = read_object(folder / file)
        if is_exported:
            return str(config["model"]["type"]), config["model"]
        if "model_type" not in config and config.keys() & TENSORRT_LLM:
            raise BuildError("it is TensorRT-LLM's: give the folder of the weights it was made of")
        return str(config["model_type"]), None
    except (KeyError, TypeError) as error:
        reason = in_words(error)
        raise BuildError(f"{file} does not say which model it is: {reason}") from error


def _names(folder: Path, exported: dict[str, Any] | None) -> Iterator[str]:
    """Places that hold a published model's name: graph, config, then path from inside out."""
    if exported is not None:
        yield str(exported.get("decoder", {}).get("filename", ""))
    if (folder / "config.json").is_file():
        yield str(read_object(folder / "config.json").get("_name_or_path", ""))
    yield from reversed(folder.resolve().parts)


def _published(text: str, kind: str) -> str | None:
    """The model name in `text`, if its family matches the architecture."""
    found = _PUBLISHED.search(text.lower())
    if found is None or not kind.startswith(found[1]):
        return None
    family, version, size = found.groups()
    joint = "" if family in _JOINED or version is None else "-"
    return f"{family}{joint}{version or ''}-{size}"


def _parameters(folder: Path, exported: dict[str, Any] | None) -> int:
    if exported is None:
        return Architecture.read(read_object(folder / "config.json")).parameters
    with suppress(BuildError):  # an ONNX folder may have the original's config, or a part of it
        return Architecture.read(read_object(folder / "config.json")).parameters
    return Graph.read(folder / exported["decoder"]["filename"]).parameters
