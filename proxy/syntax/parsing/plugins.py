"""Finding a parser's family: in installed packages by name, in a chat template by its marks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points


def own_parser(group: str, name: str, ours: Iterable[str]) -> tuple[str, str]:
    """Module and class that an installed package offers under `name` as an entry point.

    Raises:
        KeyError: no package does; the message lists what there is, `ours` included.
    """
    offered = entry_points(group=group)
    for point in offered.select(name=name):
        return point.module, point.attr
    known = ", ".join(sorted([*ours, *offered.names]))
    raise KeyError(
        f"no parser is called {name!r}; there are {known}, and entry points of {group!r}"
    )


def marked(chat_template: str, marks: Iterable[tuple[str, tuple[str, ...]]]) -> str | None:
    """The first family all of whose marks the template holds."""
    for family, needed in marks:
        if all(mark in chat_template for mark in needed):
            return family
    return None
