"""Where a model's weights are: a local folder, a Hugging Face repository or an object store.

Parsed from one string of models.yaml; `fetch` downloads remote ones.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from build_engines.section import base_of

STORES = ("s3", "gs", "https")
ARCHIVES = (".tar", ".tar.gz", ".tgz")
FORMS = (
    "a folder, hf://org/name[@revision], a file in GGUF, "
    "package://name (of an installed Python package), "
    "s3://bucket/folder, gs://bucket/folder, "
    f"or an archive ({', '.join(ARCHIVES)}) under s3://, gs:// or https://"
)
_HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


GGUF = (
    "GGUF is llama.cpp's format, which only `runtime: onnx` reads, from a local file or folder. "
    "Give the Hugging Face folder that it was made from (config.json, tokenizer.json, "
    "*.safetensors)"
)
GGUF_MAGIC = b"GGUF"  # the first bytes, also of a file without the suffix


def gguf_in(path: Path) -> Path | None:
    """The GGUF file that `path` is, or the only one in a folder without config.json."""
    if path.is_file():
        with path.open("rb") as file:
            return path if file.read(len(GGUF_MAGIC)) == GGUF_MAGIC else None
    found = _gguf_files(path)
    return found[0] if len(found) == 1 else None


def _gguf_files(folder: Path) -> list[Path]:
    return [] if any(folder.glob("*config.json")) else sorted(folder.glob("*.gguf"))


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder; a file where the weights are in GGUF."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def wrong_format(self, *, reads_gguf: bool = False) -> str | None:
        """Why this cannot be weights; None if it can."""
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, ValueError):
            return "the folder does not exist"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        if not os.access(self.path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
            return f"it cannot be read: {os.strerror(errno.EACCES)}"
        if gguf_in(self.path) is not None:
            return None if reads_gguf else f"it is in GGUF. {GGUF}"
        if self.path.is_file():
            if self.path.suffix == ".gguf":
                return "it is not a GGUF file, whatever its name says: fetch it again"
            return "it is a file: give the folder that also has its config.json"
        if files := _gguf_files(self.path):
            return f"it has {len(files)} files in GGUF: name one, such as {files[0]}"
        return None


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository on the hub. Without a revision, the first commit that is fetched is kept."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf://{self.name}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """The folder of a Python package that carries the weights."""

    name: str

    @property
    def path(self) -> Path | None:
        """None if it is not installed. The package is not imported."""
        found = importlib.util.find_spec(self.name)
        places = None if found is None else found.submodule_search_locations
        return Path(places[0]) if places else None

    def __str__(self) -> str:
        return f"package://{self.name}"


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """A folder of an object store, or one archive."""

    url: str

    @property
    def is_archive(self) -> bool:
        return self.url.endswith(ARCHIVES)

    @property
    def name(self) -> str:
        return PurePosixPath(self.url.rstrip("/")).name

    def __str__(self) -> str:
        return self.url


Weights = LocalFolder | HubRepository | InstalledPackage | StoredObjects


def parse(text: str, base: Path) -> Weights:
    """
    Args:
        base: the folder that relative folders are relative to.

    Raises:
        ValueError: `text` has none of `FORMS`.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalFolder(base / Path(text).expanduser())
    if scheme == "hf":
        if found := _HUB.fullmatch(rest):
            return HubRepository(found[1], found[2])
        raise ValueError(f"{text!r} is not a Hugging Face repository: it must be {FORMS}")
    if scheme == "package":
        if rest.isidentifier():
            return InstalledPackage(rest)
        raise ValueError(f"{text!r} is not the name of a Python package: it must be {FORMS}")
    objects = StoredObjects(text)
    if scheme not in STORES or not rest.strip("/"):
        raise ValueError(f"{text!r} cannot be fetched: it must be {FORMS}")
    if scheme == "https" and not objects.is_archive:
        raise ValueError(f"{text!r}: https:// lists no folder, so it must be {FORMS}")
    return objects


def _read(given: Any, info: ValidationInfo) -> Weights:
    """The validator for pydantic, whose context may carry `base`."""
    if isinstance(given, Weights):
        return given
    if isinstance(given, Path):
        return LocalFolder(given)
    if not isinstance(given, str) or not given:
        raise PydanticCustomError("weights", "must be {forms}", {"forms": FORMS})
    return parse(given, base_of(info))


WeightsField = Annotated[
    Weights,
    BeforeValidator(_read),
    WithJsonSchema({"type": "string", "minLength": 1, "description": FORMS}),
]
