"""YAML that remembers where each value stands, so that an error can name its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


class DuplicateKey(yaml.YAMLError):
    """A mapping has a key twice, of which YAML would drop the first in silence."""


class MarkedYaml:
    """One document: `data` as plain Python, and the lines of its values.

    Raises:
        yaml.YAMLError: it is no YAML, or a mapping has a key twice.
    """

    def __init__(self, text: str) -> None:
        self.data: Any = yaml.safe_load(text)
        self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        if self._root is not None:
            _refuse_duplicates(self._root)

    def line(self, path: Sequence[str | int]) -> int:
        """Counted from 1. A part of the path that is not in the document is passed over: what is
        missing has its parent's line, and pydantic puts a union's tag into its paths.
        """
        line, node = 1, self._root
        for part in path:
            found = _child(node, part)
            if found is not None:
                line, node = found
        return line


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    """The line of the key (of the item in a list), and what it holds."""
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
