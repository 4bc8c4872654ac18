"""Checks of a caller's JSON Schema: its validity, its size, its references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema_rs

from proxy.domain.errors import InvalidSchema, echoed, in_short
from proxy.language.structured.references import References, unfolding
from proxy.language.structured.schema_tree import REFERENCES, in_place, schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaLimits:
    """For one schema. size_bytes: as JSON. depth: in levels of JSON. properties: in total.

    unfolded: the number of schemas in it, each counted as often as it is referred to.
    """

    size_bytes: int = 256_000
    depth: int = 64
    properties: int = 5_000
    unfolded: int = 50_000


def checked(value: Any, field: str, limits: SchemaLimits) -> str:
    """The schema as JSON text.

    Args:
        value: a schema, or its text.
        field: its path in the request body, for errors.

    Raises:
        InvalidSchema: it is not a JSON Schema; a reference leads nowhere, out of the document, or
            only to itself; or it exceeds `limits`.
    """
    schema = parsed(value, field)
    text = as_json(schema, field)
    if len(text.encode()) > limits.size_bytes:
        raise too_long(field, limits.size_bytes)
    _check(schema, field, limits)
    return text


def _check(schema: Any, field: str, limits: SchemaLimits) -> None:
    check_depth(schema, field, limits.depth)
    _check_meta(schema, field)
    _check_references(schema, field)
    properties = sum(len(one.get("properties", ())) for one in schemas(schema))
    if properties > limits.properties:
        raise _invalid(field, f"it has {properties} properties, more than {limits.properties}")
    _check_circles(schema, field)
    if unfolding(schema).size > limits.unfolded:
        raise _invalid(field, f"its references unfold to more than {limits.unfolded} schemas")


def parsed(value: Any, field: str) -> Any:
    """The JSON object that `value` is, or that it is the text of.

    Raises:
        InvalidSchema: it is not a JSON object.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise _invalid(field, f"it is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise _invalid(field, f"it is {echoed(value)}, not an object")
    return value


def as_json(value: Any, field: str) -> str:
    """Raises InvalidSchema: it has NaN, an infinity, or half a surrogate pair (`\\ud800`)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise _invalid(field, f"it is not JSON: {error}") from error
    return text


def check_depth(schema: Any, field: str, limit: int) -> None:
    """Raises InvalidSchema: arrays and objects are nested more than `limit` levels deep."""
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > limit:
            raise _invalid(field, f"it is nested more than {limit} levels deep")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            if isinstance(inner, (Mapping, list))
        ]


def _check_meta(schema: Any, field: str) -> None:
    """Checks it against the draft that it names, or 2020-12."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        raise _invalid(field, f"{where}{' ' if where else ''}{in_short(error.message)}") from error
    except ValueError as error:
        raise _invalid(field, in_short(str(error))) from error


def _refuse(uri: str) -> Any:
    raise ValueError("only references within the schema are followed")


def _check_references(schema: Any, field: str) -> None:
    """Permits JSON pointers and anchors; refuses an inner $id, which would change their meaning."""
    references = References(schema)
    for one in schemas(schema):
        if one is not schema and "$id" in one:
            raise _invalid(field, f"the $id {echoed(one['$id'])} within it is not supported")
        if None in references.targets(one):
            named = next(one[name] for name in REFERENCES if name in one)
            raise _invalid(field, f"the reference {echoed(named)} is not followed")


def _check_circles(schema: Any, field: str) -> None:
    """Refuses a reference that leads to itself without a step into the value."""
    references = References(schema)
    graph: dict[int, list[int]] = {}
    by_id = {id(one): one for one in schemas(schema)}
    for one in by_id.values():
        graph[id(one)] = [id(target) for target in in_place(one) + references.targets(one)]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = [by_id[node] for node in error.args[1] if node in by_id]
        named = next(one[name] for one in circle for name in REFERENCES if name in one)
        raise _invalid(field, f"the reference {echoed(named)} leads only to itself") from None


def too_long(field: str, most: int) -> InvalidSchema:
    return _invalid(field, f"it has more than {most} bytes")


def _invalid(field: str, reason: str) -> InvalidSchema:
    return InvalidSchema(f"Invalid schema for '{field}': {reason}.", param=field)
