"""A JSON Schema as a tree of schemas: which of its values are schemas themselves."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from math import ceil, floor, inf
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from proxy.domain.errors import ErrorCode, RequestError, echoed, in_short

Schema = Mapping[str, Any]
DEFINITIONS = ("$defs", "definitions")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", *DEFINITIONS})
_MOST_STEPS = 16  # references may form a circle

_ONE = frozenset(
    {
        "items",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    }
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_MAPS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", *DEFINITIONS}
)
_UNIONS = ("anyOf", "oneOf")
# The engine's grammar ignores these keywords.
_UNSEEN = frozenset({"not", "if", "then", "else", "contains", "dependentSchemas", "dependencies"})
# Their schemas apply to the same value as the schema that contains them.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


def schemas(root: Any) -> Iterator[Schema]:
    """All schemas within a schema, itself first, except `true` and `false`.

    Pointers are followed: they may lead to schemas below no known keyword (`#/components/User`).
    """
    waiting, seen = [root], set()
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in seen:
            seen.add(id(schema))
            yield schema
            waiting += [one for _, one in below(schema)]
            named = [schema[name] for name in REFERENCES if name in schema]
            waiting += [resolved(root, one) for one in named if is_pointer(one)]


def below(schema: Schema) -> Iterator[tuple[str, Any]]:
    """(keyword, schema) for each of its direct subschemas."""
    for keyword, value in schema.items():
        if keyword in _MAPS and isinstance(value, Mapping):
            yield from ((keyword, one) for one in value.values())
        elif keyword in _LISTS and isinstance(value, list):
            yield from ((keyword, one) for one in value)
        elif keyword in _ONE:
            yield keyword, value


def in_place(schema: Schema) -> list[Any]:
    """Its direct subschemas that apply to the same value."""
    return [one for keyword, one in below(schema) if keyword in _IN_PLACE]


def is_pointer(reference: Any) -> bool:
    """Whether a `$ref` is `#` or `#/…`."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def resolved(root: Any, reference: str) -> Any:
    """What a `$ref` of `#` or `#/…` leads to; None if it leads nowhere."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = _decoded(part)
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, ValueError, TypeError):
            return None
    return found


def followed(schema: Any, root: Any) -> Schema:
    """The schema that a chain of `$ref`s and `allOf`s of one leads to, or the schema itself.

    {} where that is not an object, or a `$ref` leads nowhere.
    """
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping):
            break
        if is_pointer(schema.get("$ref")):
            schema = resolved(root, schema["$ref"])
        elif set(schema) - _ANNOTATIONS == {"allOf"} and len(schema["allOf"]) == 1:
            schema = schema["allOf"][0]
        else:
            break
    return schema if isinstance(schema, Mapping) else {}


def _decoded(part: str) -> str:
    return unquote(part).replace("~1", "/").replace("~0", "~")


_ANCHORS = ("$anchor", "$dynamicAnchor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfolding:
    """size: the number of schemas, each as often as it is referred to; a recursion counts once."""

    size: int
    is_recursive: bool


class References:
    """Resolves the references of a schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors = {
            f"#{one[name]}": one for one in schemas(root) for name in _ANCHORS if name in one
        }

    def targets(self, schema: Schema) -> list[Any]:
        """What each of its references leads to; None for one that leads out of the root schema."""
        return [self._target(schema[name]) for name in REFERENCES if name in schema]

    def _target(self, reference: Any) -> Any:
        if is_pointer(reference):
            return resolved(self._root, reference)
        return self._anchors.get(reference)


def unfolding(root: Schema) -> Unfolding:
    """The unfolded size."""
    sizes: dict[int, int] = {}
    is_recursive = False
    for schema, inner in _inside_out(root):
        is_recursive |= any(id(one) not in sizes for one in inner)
        sizes[id(schema)] = 1 + sum(sizes.get(id(one), 0) for one in inner)
    return Unfolding(size=sizes[id(root)], is_recursive=is_recursive)


def _inside_out(
    root: Schema, without: Collection[str] = DEFINITIONS
) -> Iterator[tuple[Schema, list[Schema]]]:
    """Each schema of a value, after those that are in it or that it refers to, which are given too.

    Not recursive in Python, since a chain of references may be long.
    """
    references = References(root)
    seen: set[int] = set()
    path: list[tuple[Schema, list[Schema], Iterator[Schema]]] = []

    def enter(schema: Schema) -> None:
        found = [one for keyword, one in below(schema) if keyword not in without]
        both = found + references.targets(schema)
        inner: list[Schema] = [one for one in both if isinstance(one, dict)]
        seen.add(id(schema))
        path.append((schema, inner, iter(inner)))

    enter(root)
    while path:
        schema, inner, rest = path[-1]
        one = next(rest, None)
        if one is None:
            path.pop()
            yield schema, inner
        elif id(one) not in seen:
            enter(one)


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
    """The schema as JSON text, without what no value conforms to.

    Args:
        value: a schema, or its text.
        field: its path in the request body, for errors.

    Raises:
        RequestError: it is not a JSON Schema; a reference leads nowhere, out of the document, or
            only to itself; a value that it needs cannot be written; or it exceeds `limits`.
    """
    schema = parsed(value, field)
    text = as_json(schema, field)
    if len(text.encode()) > limits.size_bytes:
        raise too_long(field, limits.size_bytes)
    found = _check(schema, field, limits)
    return text if found == schema else as_json(found, field)


def _check(schema: Any, field: str, limits: SchemaLimits) -> Any:
    check_depth(schema, field, limits.depth)
    _check_meta(schema, field)
    _check_references(schema, field)
    properties = sum(len(one.get("properties", ())) for one in schemas(schema))
    if properties > limits.properties:
        raise _invalid(field, f"it has {properties} properties, more than {limits.properties}")
    _check_circles(schema, field)
    if unfolding(schema).size > limits.unfolded:
        raise _invalid(field, f"its references unfold to more than {limits.unfolded} schemas")
    return _without_empty(schema, field)


def parsed(value: Any, field: str) -> Any:
    """The JSON object that `value` is, or that it is the text of.

    Raises:
        RequestError: it is not a JSON object.
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
    """Raises RequestError: it has NaN, an infinity, or half a surrogate pair (`\\ud800`)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise _invalid(field, f"it is not JSON: {error}") from error
    return text


def check_depth(schema: Any, field: str, limit: int) -> None:
    """Raises RequestError: arrays and objects are nested more than `limit` levels deep."""
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


def _without_empty(schema: Schema, field: str) -> Any:
    """Drops types and branches of unions that no value can conform to."""
    seen = _inside_out(schema, (*DEFINITIONS, *_UNSEEN))
    references, graph = References(schema), _Ends(one for one, _ in seen)
    for one in graph.schemas.values():
        parts: list[int | None] = [] if one.get("enum") != [] else [graph.never]
        if "const" not in one and "enum" not in one:
            parts += map(graph.part, [*references.targets(one), *one.get("allOf", ())])
            unions = (one[name] for name in _UNIONS if name in one)
            parts += [graph.need(1, map(graph.part, union)) for union in unions]
            parts.append(_value(one, graph))
        graph.need(len(parts), parts, id(one))
    try:
        found = _reduced(schema, graph.usable())
        named = [str(one.get("$ref")) for one in schemas(found)]
        if found != schema and any(f"/{name}/" in one for name in _UNIONS for one in named):
            raise ValueError  # it counts the branches
    except ValueError:
        reason = f"a value cannot be written: no number of {DECIMALS} decimals is in its range, "
        reason += "its sizes contradict each other, or it contains itself, without an end"
        raise _invalid(field, reason) from None
    return found


def _reduced(given: Any, usable: Collection[int], *, is_seen: bool = True) -> Any:
    """usable: the ids of schemas. Raises ValueError: the grammar has another one (is_seen)."""
    if isinstance(given, list):
        return [_reduced(one, usable, is_seen=is_seen) for one in given]
    if not isinstance(given, Mapping):
        return given
    is_schema = id(given) in usable  # and not data, or a map of definitions
    if is_seen and not is_schema:
        raise ValueError
    found = dict(given)
    for keyword, value in given.items():
        if is_schema and keyword == "type" and isinstance(value, list):
            empty = _empty_types(given)
            found[keyword] = [one for one in value if one not in empty]
        elif is_schema and keyword in _UNIONS:
            found[keyword] = [_reduced(one, usable) for one in value if id(one) in usable]
        elif is_schema and keyword in ("properties", "patternProperties"):
            found[keyword] = {name: _reduced(one, usable) for name, one in value.items()}
        elif keyword not in _UNSEEN:
            found[keyword] = _reduced(value, usable, is_seen=is_schema and keyword in _ONE | _LISTS)
    return found


class _Ends:
    """Which schemas' values can end: each needs some of its parts to end, so it is looked at once
    for each of them. A part is a schema's id, or that of a need inside it; None ends anyway.
    """

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self.schemas = {id(one): one for one in schemas}
        self._missing: dict[int, int] = {}
        self._above: dict[int, list[int]] = {}
        self.never = self.need(1, ())

    def part(self, schema: Any) -> int | None:
        none = self.never if schema is False else None
        return id(schema) if id(schema) in self.schemas else none

    def need(self, count: int, parts: Iterable[int | None], of: int | None = None) -> int | None:
        """What ends as soon as so many of the parts do. of: the schema's id, if it is one's."""
        found = [*parts]
        waits = [one for one in found if one is not None]
        count -= len(found) - len(waits)
        if count <= 0 and of is None:
            return None
        key = -len(self._missing) - 1 if of is None else of
        self._missing[key] = count
        for one in waits:
            self._above.setdefault(one, []).append(key)
        return key

    def usable(self) -> set[int]:
        ended = [key for key, count in self._missing.items() if count <= 0]
        while ended:
            for key in self._above.get(ended.pop(), ()):
                self._missing[key] -= 1
                if self._missing[key] == 0:
                    ended.append(key)
        return {id(True), *(key for key in self.schemas if self._missing[key] <= 0)}


def _value(one: Schema, graph: _Ends) -> int | None:
    """The need of a value of one of the schema's types."""
    part, need = graph.part, graph.need
    listed = one.get("properties", {})
    first = one.get("prefixItems", ())
    first = first if isinstance(first, list) else ()  # before 2020-12 it has no meaning
    named = one.get("type", "object" if listed else "array" if first or "items" in one else "null")
    types = ({named} if isinstance(named, str) else set(named)) - _empty_types(one)
    if types - {"object", "array"}:
        return None
    ways = []
    if "object" in types:
        parts = [part(listed.get(name)) for name in one.get("required", ())]
        if "patternProperties" not in one:
            enough = [need(one.get("minProperties", 0), map(part, listed.values()))]
            more = one.get("additionalProperties", one.get("unevaluatedProperties", False))
            enough += [part(more)] if more is not False else []
            parts.append(need(1, enough))
        ways.append(need(len(parts), parts))
    if "array" in types:
        least = one.get("minItems", 0)
        parts = [*map(part, first[:least])]
        parts += [part(one.get("items", one.get("unevaluatedItems")))] if least > len(first) else []
        ways.append(need(len(parts), parts))
    return need(1, ways)


DECIMALS = 6  # of a number in a range, in the engine's grammar
_LOWEST = {"minimum": ceil, "exclusiveMinimum": lambda bound: floor(bound) + 1}
_HIGHEST = {"maximum": floor, "exclusiveMaximum": lambda bound: ceil(bound) - 1}
_SIZES = (("string", "Length"), ("array", "Items"), ("object", "Properties"))


def _empty_types(one: Schema) -> set[str]:
    """The types whose values the schema all forbids, or the engine's grammar cannot write."""
    found = {kind for kind, of in _SIZES if one.get(f"min{of}", 0) > one.get(f"max{of}", inf)}
    multiple = Fraction(str(one.get("multipleOf") or 1)).numerator
    for kind, steps, step in (("integer", 1, multiple), ("number", 10**DECIMALS, 1)):
        first, last = bounds(one, steps)
        if first is not None and last is not None and -(-first // step) * step > last:
            found.add(kind)
    return found


def bounds(one: Schema, steps: int = 1) -> tuple[int | None, int | None]:
    """The ends of a range, rounded inward, in so many steps of 1; None for no bound."""
    above, below = (
        [
            end(Fraction(str(one[name])) * steps)
            for name, end in ends.items()
            if type(one.get(name)) in (int, float)  # and not a boolean, as in draft 4
        ]
        for ends in (_LOWEST, _HIGHEST)
    )
    return max(above, default=None), min(below, default=None)


def too_long(field: str, most: int) -> RequestError:
    return _invalid(field, f"it has more than {most} bytes")


def _invalid(field: str, reason: str) -> RequestError:
    return RequestError(
        f"Invalid schema for '{field}': {reason}.", code=ErrorCode.INVALID_SCHEMA, param=field
    )
