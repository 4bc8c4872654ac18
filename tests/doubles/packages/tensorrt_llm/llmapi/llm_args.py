"""Upstream's argument classes, made of their recorded fields.

classes_1.2.json is a link to build_engines/upstream/, so that the package can be copied elsewhere.
Keys without a record and values of another type are refused, as upstream refuses them. A class
without a record has no values here.
"""

from __future__ import annotations

import builtins
import enum
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field, create_model

PYDANTIC = ("Field", "NonNegativeFloat", "NonNegativeInt", "PositiveInt")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())


class Names(dict[str, Any]):
    """What a recorded type may name; classes are made when they are first asked for."""

    def __init__(self, record: Path) -> None:
        found = json.loads(record.read_text(encoding="utf-8"))
        self._classes, self._aliases = found["classes"], found["aliases"]
        super().__init__(Path=Path, **{name: getattr(pydantic, name) for name in PYDANTIC})

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        self[name] = self._made(name)
        return self[name]

    def _made(self, name: str) -> Any:
        if hasattr(typing, name):
            return getattr(typing, name)
        if name in self._aliases:
            return eval(self._aliases[name], {}, self)
        if name not in self._classes:
            return type(name, (), {})
        row = self._classes[name]
        if "members" in row:
            has_words = all(isinstance(value, str) for value in row["members"].values())
            return enum.Enum(name, row["members"], type=str if has_words else None)
        fields = {field: self._field(facts) for field, facts in row["fields"].items()}
        return create_model(name, __base__=self._base(row), **fields)

    def _base(self, row: Mapping[str, Any]) -> Any:
        if "decoding_types" in row:
            return self._dispatching(row["decoding_types"])
        base = row["bases"][0] if row["bases"] else ""
        return self[base] if self._classes.get(base, {}).get("fields") else _Strict

    def _dispatching(self, kinds: Mapping[str, str]) -> Any:
        names = self

        class Dispatching(_Strict):
            @classmethod
            def from_dict(cls, data: dict[str, Any]) -> Any:
                if data.get("decoding_type") not in kinds:
                    raise ValueError(f"Invalid decoding type: {data.get('decoding_type')}")
                return names[kinds[data.pop("decoding_type")]](**data)

        return Dispatching

    def _field(self, facts: Mapping[str, Any]) -> tuple[Any, Any]:
        kind = eval(facts["type"], {}, self)
        if "default" not in facts:
            return kind, ...
        default = facts["default"]
        if not isinstance(default, dict):
            return kind, default
        if default["expression"].startswith("_"):  # of the C++ bindings
            return typing.Optional[kind], None  # noqa: UP045
        return kind, Field(default_factory=lambda: eval(default["expression"], {}, self))


NAMES = Names(Path(__file__).with_name("classes_1.2.json"))
DecodingBaseConfig = NAMES["DecodingBaseConfig"]
TorchLlmArgs = NAMES["TorchLlmArgs"]
TrtLlmArgs = NAMES["TrtLlmArgs"]
