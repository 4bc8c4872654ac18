"""Serves one model folder without a models.yaml."""

from __future__ import annotations

from pathlib import Path

from build_engines.errors import BuildError, MissingPackage, UnservableFolder
from build_engines.model_name import public_name
from build_engines.models_file import ModelsFile, OnnxEntry
from build_engines.onnx_folder import CONFIG
from build_engines.weights import LocalFolder

MARKS = (CONFIG, "config.json")
DEPTHS = ("*", "*/*", "*/*/*")
LISTED_AT_MOST = 5


def models_of(folder: Path, name: str | None) -> ModelsFile:
    """The ModelsFile for one ONNX or Hugging Face folder; without a name, one is derived.

    Raises:
        UnservableFolder: it holds no model.
        MissingPackage: its name cannot be worked out without the build tools.
    """
    weights = folder.expanduser().absolute()
    if not any((weights / mark).is_file() for mark in MARKS):
        raise UnservableFolder(folder, _no_model(weights))
    try:
        return ModelsFile(
            models={name or public_name(weights): OnnxEntry(weights=LocalFolder(weights))}
        )
    except MissingPackage:
        raise
    except BuildError as error:
        raise UnservableFolder(folder, str(error)) from error


def _no_model(folder: Path) -> str:
    """The error for a folder without a model. Names the variants that an ONNX repository holds."""
    if not folder.is_dir():
        return "the folder does not exist"
    found = [path.parent for depth in DEPTHS for path in folder.glob(f"{depth}/{CONFIG}")]
    inside = sorted(found)[:LISTED_AT_MOST]
    hint = f"; take one of {', '.join(map(str, inside))}" if inside else ""
    return f"it has no {MARKS[0]} and no {MARKS[1]}{hint}"
