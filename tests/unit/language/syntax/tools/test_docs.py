"""docs/tools.md lists all families."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.language.syntax.reasoning.families import FAMILIES as REASONING
from proxy.language.syntax.tools.families import FAMILIES as TOOLS

DOCS = (Path(__file__).parents[5] / "docs" / "tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "families"), [("tool_parser", TOOLS), ("reasoning_parser", REASONING)]
)
def test_every_family_has_a_row(heading, families):
    table = DOCS[DOCS.index(f"| `{heading}` |") :].split("\n\n", 1)[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(families)
