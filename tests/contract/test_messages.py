"""No message names a page of docs/, which an installed package does not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("proxy", "build_engines", "model_repository", "demo_model", "dashboards")
PAGES = "|".join(page.name for page in (ROOT / "docs").rglob("*.md"))
NAMED = re.compile(rf"(?<![/\w])docs/|\b(?:{PAGES})(?![\w/])")
SHIPPED = {"proxy/api/openapi/document.py": "parameters.md"}  # a file of the package's own


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is no docstring; settings show theirs to operators."""
    tree = ast.parse(path.read_text())
    docs = set[ast.AST]()
    if "settings" not in path.parts:
        docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.lineno, node.value


def test_no_message_names_a_page_of_the_documentation():
    sources = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    assert len(sources) > 400
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sources
        for line, text in texts(path)
        if NAMED.search(text) and SHIPPED.get(str(path.relative_to(ROOT))) != text
    ]
    assert found == []


def test_the_web_page_names_none_either():
    for path in (ROOT / "proxy" / "page").glob("*.*"):
        assert not NAMED.search(path.read_text()), path
