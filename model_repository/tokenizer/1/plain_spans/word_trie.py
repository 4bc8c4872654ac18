"""Many words as one regular expression, whose cost does not grow with their number.

proxy/language/prompting/control_tokens.py makes the same expressions, so the proxy finds the same
tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Node = dict[str, Any]
END = ""


def one_of(words: Iterable[str]) -> str:
    """A pattern for the longest word at a position; without any words it matches nothing."""
    root: Node = {}
    for word in words:
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[END] = {}
    return _written(root) if root else r"(?!)"


def _written(node: Node) -> str:
    """The pattern of a node. Runs without a fork are one piece, so groups nest only at forks."""
    branches = [_run(character, after) for character, after in node.items() if character != END]
    if not branches:
        return ""
    if END not in node:
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{'|'.join(branches)})?"


def _run(character: str, after: Node) -> str:
    run = [character]
    while len(after) == 1 and END not in after:
        ((character, after),) = after.items()
        run.append(character)
    return re.escape("".join(run)) + _written(after)
