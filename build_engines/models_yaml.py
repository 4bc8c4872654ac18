"""Errors of models.yaml, for people: the line of each value, and the key that a misspelt one meant.

Called by `models_file`; the proxy calls `near_key` for the fields of bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from build_engines.section import Section


class DuplicateKey(yaml.YAMLError):
    """A mapping has a key twice; plain YAML would silently drop the first."""


class MarkedYaml:
    """One document: `data` as plain Python, and the lines of its values.

    Raises:
        yaml.YAMLError: the text is not YAML, or a mapping has a key twice.
    """

    def __init__(self, text: str) -> None:
        self.data: Any = yaml.safe_load(text)
        self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        if self._root is not None:
            _refuse_duplicates(self._root)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a path, counted from 1.

        Skips parts that the document does not have: a missing key has its parent's line, and
        pydantic's paths contain the tags of unions.
        """
        line, node = 1, self._root
        for part in path:
            found = _child(node, part)
            if found is not None:
                line, node = found
        return line


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    """The line of a key or list item, and its value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line + 1, item
    return None


def _refuse_duplicates(node: yaml.Node) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise DuplicateKey(f"{key.value!r} stands in lines {lines[key.value]} and {line}")
        lines[key.value] = line
        _refuse_duplicates(value)


UNKNOWN = "extra_forbidden"  # the type of pydantic's error
LONGEST_KEY = 64  # a longer one is not compared
Place = Sequence[str | int]


def unknown_first(errors: Sequence[ErrorDetails], root: type[Section]) -> list[ErrorDetails]:
    """Sorts the errors: a misspelt key comes before the keys that are missing because of it.

    A key that resembles a known one comes before the others: a misspelt `runtime` makes its
    runtime's keys unknown, too.
    """

    def order(error: ErrorDetails) -> int:
        if error["type"] != UNKNOWN:
            return 2
        return 0 if near_key(error["loc"], root) else 1

    return sorted(errors, key=order)


def unknown_key(place: Place, root: type[Section]) -> str:
    """The message for an unknown key. place: pydantic's location, with the tags of unions."""
    if near := near_key(place, root):
        return f"unknown key: did you mean {near!r}?"
    return f"unknown key: it must be one of {', '.join(_known(place, root))}"


def near_key(place: Place, root: type[BaseModel], alike: float = 0.6) -> str | None:
    """The known key that the last part of `place` resembles by this ratio, as difflib has it."""
    word = str(place[-1]).lower().replace("-", "_")
    known = {key.lower(): key for key in _known(place, root)}
    found = get_close_matches(word, known, n=1, cutoff=alike) if len(word) <= LONGEST_KEY else ()
    return known[found[0]] if found else None


def _known(place: Place, root: type[BaseModel]) -> list[str]:
    """The keys of the section that holds the last part of `place`."""
    kinds: list[Any] = [root]
    for part in place[:-1]:
        kinds = list(_inside(kinds, part))
    return [key for kind in kinds if _is_section(kind) for key in _fields(kind)]


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _inside(kinds: list[Any], part: str | int) -> Iterator[Any]:
    """The types under a key, under a list index, or behind a union's tag."""
    sections = [kind for kind in kinds if _is_section(kind)]
    is_tag = isinstance(part, str) and part.startswith("<")  # in bodies
    if is_tag or len(sections) > 1:
        tag = str(part).strip("<>")
        yield from [one for one in sections if tag in _tags(one)] or (kinds if is_tag else ())
        return
    for section in sections:
        if found := _fields(section).get(str(part)):
            yield from _flat(found.annotation)
    for kind in kinds:
        if get_origin(kind) in (dict, tuple, list):
            yield from _flat(get_args(kind)[get_origin(kind) is dict])


def _tags(section: type[BaseModel]) -> set[Any]:
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
    return isinstance(kind, type) and issubclass(kind, BaseModel)
