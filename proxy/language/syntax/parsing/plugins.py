"""Finding a family: by name in installed packages, by its marks in a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any


@lru_cache(maxsize=16)
def plugin(group: str, name: str, ours: tuple[str, ...]) -> Any:
    """The object that an installed package offers as the entry point `name` of `group`.

    Cached, since a search of all installed packages takes milliseconds.

    Args:
        ours: the names of our own families, for the message.

    Raises:
        KeyError: no package offers one; the message lists all names.
    """
    offered = entry_points(group=group)
    for point in offered.select(name=name):
        return point.load()
    known = ", ".join(sorted([*ours, *offered.names]))
    raise KeyError(
        f"no parser is called {name!r}; there are {known}, and entry points of {group!r}"
    )


def has_marks(chat_template: str, alternatives: Iterable[tuple[str, ...]]) -> bool:
    """Whether the template contains all marks of one of the alternatives."""
    return any(all(mark in chat_template for mark in marks) for marks in alternatives)
