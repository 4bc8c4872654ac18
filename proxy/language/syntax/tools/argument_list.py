"""A tool's arguments one after another, in syntaxes other than JSON: the guide's part of it.

Called by the families that write Python's keywords, and by those that write elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.language.structured.schema_tree import DEFINITIONS, schemas
from proxy.language.structured.tag_formats import (
    Format,
    const_string,
    either,
    optional,
    sequence,
)

# (name of an argument, schema of its value) -> how it is written
WriteArgument = Callable[[str, Any], Format]
# A list may begin with any optional argument, followed by any that come after it: the guide grows
# with the square of their number.
OPTIONAL_AT_MOST = 64
_PLAIN_KEYWORDS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$schema",
    *DEFINITIONS,
}


def argument_list(schema: Any, write: WriteArgument, separator: str) -> Format:
    """The required arguments first, each group in the order of the schema."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    shared = {name: schema[name] for name in DEFINITIONS if name in schema}
    required = [name for name in properties if name in schema.get("required", ())]
    others = [name for name in properties if name not in required]
    one = {name: write(name, _with(value, shared)) for name, value in properties.items()}

    def following(name: str) -> Format:
        return sequence(const_string(separator), one[name])

    def optionals(names: list[str]) -> list[Format]:
        return [optional(following(name)) for name in names]

    if required:
        first, *more = required
        return sequence(one[first], *map(following, more), *optionals(others))
    starts = [sequence(one[name], *optionals(others[at + 1 :])) for at, name in enumerate(others)]
    return either(const_string(""), *starts)


def has_independent_arguments(schema: Any) -> bool:
    """Whether the schema lists its properties, few of them optional, and has no rule that connects
    one property with another: `argument_list` can enforce nothing else.
    """
    optional_names = set(schema.get("properties", ())) - set(schema.get("required", ()))
    references = [one["$ref"] for one in schemas(schema) if "$ref" in one]
    return (
        set(schema) <= _PLAIN_KEYWORDS
        and len(optional_names) <= OPTIONAL_AT_MOST
        and set(schema.get("required", ())) <= set(schema.get("properties", ()))
        and all(str(one).startswith(("#/$defs/", "#/definitions/")) for one in references)
    )


def _with(schema: Any, shared: Mapping[str, Any]) -> Any:
    return {**schema, **shared} if isinstance(schema, Mapping) else schema
