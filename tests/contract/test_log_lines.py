"""All fields of a request's line are documented; every bad line says what to do."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from proxy.telemetry import request_log

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "proxy").rglob("*.py"))
BAD = ("warning", "error", "exception", "critical")
LEAST_ADVICE = 15  # characters


def calls(path: Path) -> Iterator[tuple[ast.Call, str, str]]:
    """Calls of `owner.verb(…)`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name):
                yield node, owner.id, node.func.attr


def fields() -> set[str]:
    """The fields of a request's line, and `request_id`, which every line within a request has."""
    source = ast.parse(inspect.getsource(request_log.line_of))
    (found,) = [node for node in ast.walk(source) if isinstance(node, ast.Dict)]
    return {"request_id"} | {ast.literal_eval(key) for key in found.keys}


def test_every_field_is_documented():
    text = (ROOT / "docs/operations.md").read_text()
    section = text.split("\n## Logs\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == fields()


def test_every_warning_and_error_says_what_to_do():
    bad = [
        (f"{path.relative_to(ROOT)}:{call.lineno}", call)
        for path in SOURCES
        for call, owner, verb in calls(path)
        if owner == "logger" and verb in BAD
    ]
    assert bad
    for where, call in bad:
        given = [each.value for each in call.keywords if each.arg == "advice"]
        assert given, f"{where}: give `advice`, what an operator should do"
        if isinstance(given[0], ast.Constant):
            assert len(given[0].value) >= LEAST_ADVICE, where
