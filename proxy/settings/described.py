"""What each setting is, from the source: for `triton-openai settings` and the documentation."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from proxy.settings import Settings, callers, listening, requests, state, streams, triton


def groups() -> Iterator[tuple[str, dict[str, str]]]:
    """Heading of each group, and its fields: name -> description."""
    for module in (listening, callers, triton, requests, streams, state):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                yield ast.get_docstring(node) or "", dict(_described(node))


def _described(group: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """A string that stands alone describes the field above it."""
    for field, text in zip(group.body, group.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            yield field.target.id, " ".join(ast.literal_eval(text.value).split()) if is_text else ""


def default(name: str) -> str | None:
    """As a variable has it; None for none."""
    value = Settings.model_fields[name].default
    if isinstance(value, dict):
        value = tuple(f"{key}={each}" for key, each in value.items())
    if isinstance(value, tuple):
        value = ",".join(value) or None
    if isinstance(value, bool):
        value = str(value).lower()
    return f"{value:g}" if isinstance(value, float) else value and str(value)
