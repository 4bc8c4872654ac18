"""Adds the descriptions of the parameter tables to the OpenAPI document.

`parameters.md` has the rows of the tables in docs/api.md and docs/nvext.md; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<of>\w+) \| (?P<words>.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
# The document's schema -> the kinds of rows that describe its fields.
SCHEMAS = {
    "ChatCompletionBody": ("both", "chat"),
    "CompletionBody": ("both", "completions"),
    "NvExt": ("nvext",),
}


def describe(schemas: dict[str, Any]) -> None:
    """Gives each field of the bodies the description in its row.

    Raises:
        KeyError: a field has no row.
    """
    for name, kinds in SCHEMAS.items():
        words = {one: text for kind in kinds for one, text in _rows()[kind].items()}
        for field, schema in schemas[name]["properties"].items():
            schema["description"] = words[field]


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    """Kind of body -> field -> description. Links are removed, since they lead nowhere here."""
    folder = resources.files("triton_openai.proxy.api.openai.documentation")
    table = (folder / "parameters.md").read_text()
    found: dict[str, dict[str, str]] = {}
    for row in ROW.finditer(table):
        words = LINK.sub(r"\1", row["words"]).replace("\\|", "|")
        found.setdefault(row["of"], {})[row["name"]] = words[0].upper() + words[1:]
    return found
