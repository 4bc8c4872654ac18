"""Python expressions as JSON values, without running them."""

from __future__ import annotations

import ast
from typing import Any


def value(node: ast.expr) -> Any:
    """A literal as itself, anything else as {"expression": its source}."""
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return {"expression": ast.unparse(node)}
    return list(found) if isinstance(found, (tuple, set)) else found


def annotation(node: ast.expr | None) -> str:
    """A type as source text; quotes around the whole of it are removed."""
    if node is None:
        return "Any"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)
