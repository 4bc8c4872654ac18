"""Finds unknown keys of models.yaml and suggests the key that was meant. For models_file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import ErrorDetails

from build_engines.section import Section

UNKNOWN = "extra_forbidden"  # the type of pydantic's error
Place = Sequence[str | int]


def unknown_first(errors: Sequence[ErrorDetails], root: type[Section]) -> list[ErrorDetails]:
    """Sorts the errors: a misspelt key comes before the keys that are missing because of it.

    A key that resembles a known one comes before the others: a misspelt `runtime` makes its
    runtime's keys unknown, too.
    """

    def order(error: ErrorDetails) -> int:
        if error["type"] != UNKNOWN:
            return 2
        return 0 if _near(error["loc"], root) else 1

    return sorted(errors, key=order)


def message(place: Place, root: type[Section]) -> str:
    """The message for an unknown key. place: pydantic's location, with the tags of unions."""
    if near := _near(place, root):
        return f"unknown key: did you mean {near!r}?"
    return f"unknown key: it must be one of {', '.join(_known(place, root))}"


def _near(place: Place, root: type[Section]) -> str | None:
    known = {key.lower(): key for key in _known(place, root)}
    found = get_close_matches(str(place[-1]).lower().replace("-", "_"), known, n=1)
    return known[found[0]] if found else None


def _known(place: Place, root: type[Section]) -> list[str]:
    """The keys of the section that holds the last part of `place`."""
    kinds: list[Any] = [root]
    for part in place[:-1]:
        kinds = list(_inside(kinds, part))
    return [key for kind in kinds if _is_section(kind) for key in kind.model_fields]


def _inside(kinds: list[Any], part: str | int) -> Iterator[Any]:
    """The types under a key, under a list index, or behind a union's tag."""
    sections = [kind for kind in kinds if _is_section(kind)]
    if len(sections) > 1:
        yield from (section for section in sections if part in _tags(section))
        return
    for section in sections:
        if part in section.model_fields:
            yield from _flat(section.model_fields[str(part)].annotation)
    for kind in kinds:
        if get_origin(kind) in (dict, tuple, list):
            yield from _flat(get_args(kind)[get_origin(kind) is dict])


def _tags(section: type[Section]) -> set[Any]:
    """The tags that tell a section from the others of a union."""
    literals = (field.annotation for field in section.model_fields.values())
    return {tag for kind in literals if get_origin(kind) is Literal for tag in get_args(kind)}


def _flat(annotation: Any) -> Iterator[Any]:
    """The member types of a union, without Annotated or Optional."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _flat(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _flat(one)
    else:
        yield annotation


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
