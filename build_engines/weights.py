"""Where a model's weights are: a local folder, a Hugging Face repository or an object store.

Parsed from one string of models.yaml; `fetch` downloads remote ones.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from build_engines.section import base_of

STORES = ("s3", "gs", "https")
ARCHIVES = (".tar", ".tar.gz", ".tgz")
FORMS = (
    "a folder, hf://org/name[@revision], package://name (of an installed Python package), "
    "s3://bucket/folder, gs://bucket/folder, "
    f"or an archive ({', '.join(ARCHIVES)}) under s3://, gs:// or https://"
)
_HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


GGUF = (
    "GGUF is llama.cpp's format, which no runtime here reads. Give the Hugging Face folder that it "
    "was made from (config.json, tokenizer.json, *.safetensors); `precision: int4` makes it small"
)
GGUF_MAGIC = b"GGUF"  # the first bytes, also of a file without the suffix


@dataclass(frozen=True, slots=True)
class LocalFolder:
    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def wrong_format(self) -> str | None:
        """Why this can be no folder of weights; None if it can."""
        if self.path.is_file():
            with self.path.open("rb") as file:
                is_gguf = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
            if is_gguf or self.path.suffix == ".gguf":
                return f"it is a file in GGUF. {GGUF}"
            return "it is a file: give the folder that also has its config.json"
        if not self.path.is_dir():
            return "the folder does not exist"
        if any(self.path.glob("*.gguf")) and not any(self.path.glob("*config.json")):
            return f"it has files in GGUF only. {GGUF}"
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
