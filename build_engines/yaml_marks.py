"""YAML that remembers the line of each value, so that an error can name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


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
