"""TensorRT-LLM's classes as recorded in classes.json, which tests/upstream/record.py writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLASSES = Path(__file__).with_name("classes.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClasses:
    """rows: class -> bases, fields, and where it has them members, attributes, methods.

    aliases: name -> the type that it stands for, in Python.
    """

    rows: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, str]

    @classmethod
    def read(cls, path: Path = CLASSES) -> RecordedClasses:
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(rows=found["classes"], aliases=found["aliases"])

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
