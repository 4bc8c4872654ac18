"""The request's line has listed and documented fields only; every bad line says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.domain.timeline import StageName
from proxy.telemetry.line_fields import FIELDS, LONGEST_WORD, MOST_NOTES

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "proxy").rglob("*.py"))
NAMED = ("count", "list_in")  # of request_log: their first argument is the field
BAD = ("warning", "error", "exception", "critical")
LEAST_ADVICE = 15  # characters


def calls(path: Path) -> Iterator[tuple[ast.Call, str, str]]:
    """Calls of `owner.verb(…)`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name):
                yield node, owner.id, node.func.attr


def fields() -> Iterator[tuple[str, str]]:
    """Of the request's line: the file that adds it, and its name."""
    for path in SOURCES:
        for call, owner, verb in calls(path):
            if owner == "request_log" and verb in NAMED:
                yield path.name, ast.literal_eval(call.args[0])
            elif owner == "request_log":
                for each in call.keywords:
                    assert each.arg is not None, f"{path}: fields of the line are named"
                    yield path.name, each.arg


def test_every_field_that_is_added_is_on_the_list():
    found = set(fields())
    assert {("authentication.py", "key_id"), ("request_watcher.py", "resent")} <= found
    own = {"duration_ms", "stages_ms", "trace_id"}  # RequestLine's
    unknown = {(file, name) for file, name in found if name not in FIELDS}
    assert not unknown, f"put them into proxy/telemetry/line_fields.py: {unknown}"
    assert {name for _, name in found} | own == FIELDS.keys(), "fields that nobody adds"


def test_every_field_is_documented():
    text = (ROOT / "docs/operations.md").read_text()
    section = text.split("\n## Logs\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented - {"request_id"} == FIELDS.keys()


def test_the_names_of_all_stages_fit_into_the_line():
    assert len(StageName) <= MOST_NOTES
    assert all(len(each.value) <= LONGEST_WORD for each in StageName)


def bad_lines() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(ROOT)}:{call.lineno}", call)
        for path in SOURCES
        for call, owner, verb in calls(path)
        if owner == "logger" and verb in BAD
    ]


@pytest.mark.parametrize(
    ("where", "call"), bad_lines(), ids=lambda value: value if type(value) is str else ""
)
def test_every_warning_and_error_says_what_to_do(where, call):
    given = [each.value for each in call.keywords if each.arg == "advice"]
    assert given, f"{where}: give `advice`, what an operator should do"
    if isinstance(given[0], ast.Constant):
        assert len(given[0].value) >= LEAST_ADVICE, where
