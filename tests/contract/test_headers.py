"""Headers stand in one table, which the document, CORS and docs/generated/headers.md follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from proxy.api.http.own_headers import HEADER
from proxy.api.openapi.responses import HEADERS
from tests.fixtures.stack import ROOT

# Read, not sent, or of proxies and browsers alone.
OTHERS = {"x-api-key", HEADER, "x-accel-buffering", "x-content-type-options", "x-line-schema"}
OURS = re.compile(r"(x|retry|idempoten\w+)-[a-z-]*[a-z]")


def names() -> Iterator[str]:
    for path in (ROOT / "proxy" / "api").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if isinstance(text, str) and OURS.fullmatch(text.lower()):
                yield text.lower()


def test_the_table_has_every_header_that_the_code_names():
    assert {*names()} - OTHERS - {"idempotency-key"} == {
        name for name in HEADERS if OURS.fullmatch(name)
    }
