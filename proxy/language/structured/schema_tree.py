"""A JSON Schema as a tree of schemas: which of its values are schemas themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

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
