"""Types for the values that XML-like families write as bare text, from the tool's JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.language.structured.schema_tree import is_pointer, resolved
from proxy.language.syntax.tools.literal import escaped, literal_in

_ALL = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_PYTHON_TYPES = {
    **{"str": "string", "int": "integer", "float": "number", "bool": "boolean"},
    **{"dict": "object", "list": "array", "tuple": "array"},
}
_NAMED_VALUES = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_DEPTH = 8


def types_of(schema: Any, root: Any = None) -> frozenset[str]:
    """The JSON types that a schema allows; all types if it does not restrict them.

    root: the schema that its references point into.
    """
    return _Types(root).of(schema)


def typed(text: str, types: frozenset[str]) -> str:
    """The JSON of a value written as text: of an allowed type if possible, else a string."""
    bare = text.strip()
    found = _NAMED_VALUES.get(bare.lower()) or literal_in(bare)
    if found is None or types == {"string"}:
        return f'"{escaped(text)}"'
    if "string" in types and _type_of_json(found) not in types:
        return f'"{escaped(text)}"'
    return found


class _Types:
    """Resolves each reference once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._referred: dict[str, frozenset[str]] = {}

    def of(self, schema: Any, depth: int = 0) -> frozenset[str]:
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return _ALL
        if "type" in schema:
            return _named(schema["type"])
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = schema.get("enum", [schema.get("const")])
            return frozenset(map(_type_of_value, values)) or _ALL
        if is_pointer(schema.get("$ref")):
            return self._of_reference(schema["$ref"], depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                joined = frozenset.intersection if key == "allOf" else frozenset.union
                return joined(*(self.of(one, depth + 1) for one in schema[key])) or _ALL
        return _ALL

    def _of_reference(self, reference: str, depth: int) -> frozenset[str]:
        if reference not in self._referred:
            self._referred[reference] = _ALL  # until it is resolved: it may lead to itself
            self._referred[reference] = self.of(resolved(self._root, reference), depth)
        return self._referred[reference]


def _named(names: Any) -> frozenset[str]:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list):
        return _ALL
    known = {_PYTHON_TYPES.get(str(name), str(name)) for name in listed} & _ALL
    if "number" in known:
        known.add("integer")
    return frozenset(known) or _ALL


def _type_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Mapping):
        return "object"
    names = {str: "string", int: "integer", float: "number", list: "array", type(None): "null"}
    return names.get(type(value), "string")


def _type_of_json(text: str) -> str:
    names = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean"}
    if text == "null":
        return "null"
    is_whole = not any(mark in text for mark in ".eE")
    return names.get(text[0], "integer" if is_whole else "number")
