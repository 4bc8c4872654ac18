"""The references within a schema, and its size with all of them followed.

The size bounds the cost of checking a value. Called by `schema` and `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.language.structured.schema_tree import (
    DEFINITIONS,
    REFERENCES,
    Schema,
    below,
    is_pointer,
    resolved,
    schemas,
)

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
    """The unfolded size. Not recursive in Python, since a chain of references may be long."""
    references = References(root)
    sizes: dict[int, int] = {}
    is_recursive = False
    path: list[tuple[Schema, Iterator[Any]]] = []
    on_path: set[int] = set()

    def enter(schema: Schema) -> None:
        inner = [one for keyword, one in below(schema) if keyword not in DEFINITIONS]
        inner += references.targets(schema)
        on_path.add(id(schema))
        sizes[id(schema)] = 1
        path.append((schema, iter([one for one in inner if isinstance(one, dict)])))

    enter(root)
    while path:
        schema, inner = path[-1]
        one = next(inner, None)
        if one is None:
            path.pop()
            on_path.discard(id(schema))
            if path:
                sizes[id(path[-1][0])] += sizes[id(schema)]
        elif id(one) in on_path:
            is_recursive = True
        elif id(one) in sizes:
            sizes[id(schema)] += sizes[id(one)]
        else:
            enter(one)
    return Unfolding(size=sizes[id(root)], is_recursive=is_recursive)
