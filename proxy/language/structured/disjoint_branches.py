"""Whether the branches of a `oneOf` exclude each other, as far as that is easy to see.

If they do, a grammar may treat the `oneOf` like an `anyOf`. Called by `keywords`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from proxy.language.structured.schema_tree import Schema, followed

PAIRS_AT_MOST = 64  # branches that are compared in pairs; more need one fact that separates all


@dataclass(frozen=True, slots=True)
class _Branch:
    """values: those that it lists, None if it lists none. types: empty if it names none; with
    `number` also `integer`.
    """

    schema: Schema
    values: frozenset[Hashable] | None
    types: frozenset[str]

    @property
    def is_object(self) -> bool:
        return self.types == {"object"}

    @property
    def required(self) -> dict[str, Any]:
        """The schemas of its required properties, where they are objects."""
        properties = self.schema.get("properties", {})
        return {
            name: properties[name]
            for name in self.schema.get("required", ())
            if isinstance(properties.get(name), dict)
        }


def are_disjoint(branches: Sequence[Any], root: Schema) -> bool:
    return _all_exclude_each_other([_branch(followed(branch, root)) for branch in branches])


def _all_exclude_each_other(branches: Sequence[_Branch]) -> bool:
    if len(branches) <= PAIRS_AT_MOST:
        return all(_exclude_each_other(one, other) for one, other in combinations(branches, 2))
    return _share_no_value(branches) or _share_no_type(branches) or _has_discriminator(branches)


def _exclude_each_other(one: _Branch, other: _Branch) -> bool:
    if one.values is not None and other.values is not None:
        return one.values.isdisjoint(other.values)
    if one.types and other.types and not one.types & other.types:
        return True
    if not (one.is_object and other.is_object):
        return False
    ours, theirs = one.required, other.required
    return any(
        _exclude_each_other(_branch(schema), _branch(theirs[name]))
        for name, schema in ours.items()
        if name in theirs
    )


def _share_no_value(branches: Sequence[_Branch]) -> bool:
    seen: set[Hashable] = set()
    for branch in branches:
        if branch.values is None or not seen.isdisjoint(branch.values):
            return False
        seen |= branch.values
    return True


def _share_no_type(branches: Sequence[_Branch]) -> bool:
    seen: set[str] = set()
    for branch in branches:
        if not branch.types or seen & branch.types:
            return False
        seen |= branch.types
    return True


def _has_discriminator(branches: Sequence[_Branch]) -> bool:
    """Whether they all require one property, with disjoint schemas for it."""
    if not all(branch.is_object for branch in branches):
        return False
    required = [branch.required for branch in branches]
    shared = set(required[0]).intersection(*required[1:])
    return any(_all_exclude_each_other([_branch(one[name]) for one in required]) for name in shared)


def _branch(schema: Schema) -> _Branch:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    values = None if listed is None else frozenset(map(_key, listed))
    named = schema.get("type", ())
    types = {named} if isinstance(named, str) else set(named)
    more = {"integer"} if "number" in types else set()
    return _Branch(schema, values, frozenset(types | more))


def _key(value: Any) -> Hashable:
    """Equal keys for equal JSON values: for `1` and `1.0`, but not for `1` and `true`."""
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return frozenset((name, _key(one)) for name, one in value.items())
    return isinstance(value, bool), value
