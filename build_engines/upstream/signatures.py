"""The signatures of tensorrt_llm that the engine relies on, and how an installed one differs.

classes_1.2.json and classes_1.3.json record TensorRT-LLM's classes; tests/upstream/record.py writes
them. tensorrt_llm.json has for each callable its name there and the parameters that the engine
uses; for each class the attributes that the engine uses.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.engine_limits import TORCH_SAMPLER_IS_WHOLE

OLDER, NEWER = (Path(__file__).with_name(f"classes_{name}.json") for name in ("1.2", "1.3"))
VERSIONS = {OLDER: "1.2.1", NEWER: str(TORCH_SAMPLER_IS_WHOLE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClasses:
    """rows: class -> bases, fields, and where it has them members, attributes, methods.

    aliases: name -> the type that it stands for, in Python.
    """

    rows: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, str]
    product: str

    @classmethod
    def read(cls, path: Path = OLDER) -> RecordedClasses:
        found = json.loads(path.read_text(encoding="utf-8"))
        product = found.get("product", "TensorRT-LLM")
        return cls(rows=found["classes"], aliases=found["aliases"], product=product)

    def fields(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Field -> its type and default, inherited ones included. Raises KeyError."""
        found: dict[str, Mapping[str, Any]] = {}
        for row in reversed(list(self._lineage(name))):
            found |= row["fields"]
        return found

    def parameters(self, place: str) -> frozenset[str]:
        """The parameters of `Class.method`, or of the constructor of `Class`. Raises KeyError."""
        name, _, method = place.partition(".")
        if not method:
            fields = self.fields(name)
            return frozenset(field for field in fields if fields[field].get("is_init", True))
        for row in self._lineage(name):
            if method in row.get("methods", {}):
                return frozenset(parameter["name"] for parameter in row["methods"][method])
        raise KeyError(place)

    def _lineage(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The class and the recorded ones that it inherits from, itself first."""
        row = self.rows[name]
        yield row
        for base in row["bases"]:
            if base in self.rows:
                yield from self._lineage(base)


def record_of(version: Version) -> Path:
    """The record that holds for that version."""
    return NEWER if version >= TORCH_SAMPLER_IS_WHOLE else OLDER


FACTS = Path(__file__).with_name("tensorrt_llm.json")
Found = Mapping[str, frozenset[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of one callable or class, in words. `breaks`: the engine cannot do without what is gone."""

    target: str
    text: str
    breaks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """What the engine relies on in tensorrt_llm `version`, by target: `module:Class.method`.

    known: all parameters of that version. used: the parameters that the engine passes; by
    `target attributes`, the attributes that it reads. later: parameters of the newest record only.
    """

    version: str
    known: Mapping[str, frozenset[str]]
    used: Mapping[str, frozenset[str]]
    later: Mapping[str, frozenset[str]]

    @classmethod
    def read(cls, record: Path = OLDER) -> Signatures:
        facts = json.loads(FACTS.read_text(encoding="utf-8"))
        callables, attributes = facts["callables"], facts["attributes"]
        recorded, newest = RecordedClasses.read(record), RecordedClasses.read(NEWER)
        known, later = (
            {target: classes.parameters(row["recorded"]) for target, row in callables.items()}
            for classes in (recorded, newest)
        )
        return cls(
            version=VERSIONS[record],
            known=known,
            used={target: frozenset(row["used"]) for target, row in callables.items()}
            | {f"{target} attributes": frozenset(names) for target, names in attributes.items()},
            later={target: names - known[target] for target, names in later.items()},
        )

    def found(self) -> dict[str, frozenset[str] | None]:
        """The same targets in the installed package; None for one that is not there."""
        return {target: _names(target) for target in self.used}

    def differences(self, found: Found) -> Iterator[Difference]:
        for target, used in self.used.items():
            names = found.get(target)
            if names is None:
                yield Difference(target=target, text="is not there", breaks=True)
                continue
            for name in sorted(used - names):
                yield Difference(target=target, text=f"has no {name!r}", breaks=True)
            if target in self.known:
                yield from self._harmless(target, names)

    def _harmless(self, target: str, names: frozenset[str]) -> Iterator[Difference]:
        known = self.known[target]
        for name in sorted(known - names - self.used[target]):
            yield Difference(target=target, text=f"has no {name!r} any more", breaks=False)
        for name in sorted(names - known - self.later[target]):
            yield Difference(target=target, text=f"has {name!r}, which is new", breaks=False)


def _names(target: str) -> frozenset[str] | None:
    place, _, kind = target.partition(" ")
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    if kind == "attributes":
        return frozenset(dir(found)) | frozenset(getattr(found, "__dataclass_fields__", ()))
    return frozenset(inspect.signature(found).parameters)
