"""Finding a family: by name, also in installed packages; by its marks in a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

Family = TypeVar("Family")


def named(name: str, ours: Mapping[str, Family], group: str, kind: type[Family]) -> Family:
    """One of our families, or of an installed package.

    Args:
        group: of the packages' entry points: each is of `kind`, or a parser alone.

    Raises:
        KeyError: no family has this name; the message lists those that exist.
    """
    if name in ours:
        return ours[name]
    offered: Any = _plugin(group, name, tuple(ours))
    make: Any = kind
    family: Family = offered if isinstance(offered, kind) else make(parser_type=offered)
    return family


def in_template(chat_template: str, families: Mapping[str, Any]) -> str | None:
    """The first family of which the template contains all marks of one alternative."""
    for name, family in families.items():
        if any(all(mark in chat_template for mark in marks) for marks in family.template_marks):
            return name
    return None


@lru_cache(maxsize=16)
def _plugin(group: str, name: str, ours: tuple[str, ...]) -> Any:
    """What an installed package offers. Cached: searching all packages takes milliseconds."""
    offered = entry_points(group=group)
    for point in offered.select(name=name):
        return point.load()
    known = ", ".join(sorted([*ours, *offered.names]))
    raise KeyError(
        f"no parser is called {name!r}; there are {known}, and entry points of {group!r}"
    )
