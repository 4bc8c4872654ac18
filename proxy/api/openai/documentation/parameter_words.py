"""The words of the parameter tables, for the OpenAPI document.

`parameters.md` has the rows of README's table and of `docs/nvext.md`; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<of>\w+) \| (?P<words>.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
# The document's schema -> which rows are of its fields.
SCHEMAS = {
    "ChatCompletionBody": ("both", "chat"),
    "CompletionBody": ("both", "completions"),
    "NvExt": ("nvext",),
}


def describe(schemas: dict[str, Any]) -> None:
    """Gives each field of the bodies its row's words.

    Raises:
        KeyError: a field has no row.
    """
    for name, kinds in SCHEMAS.items():
        words = {one: text for kind in kinds for one, text in _rows()[kind].items()}
        for field, schema in schemas[name]["properties"].items():
            schema["description"] = words[field]


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    """Kind of body -> name of the field -> words. Links lead nowhere outside of the README."""
    table = (
        resources.files("triton_openai.proxy.api.openai.documentation") / "parameters.md"
    ).read_text()
    found: dict[str, dict[str, str]] = {}
    for row in ROW.finditer(table):
        words = LINK.sub(r"\1", row["words"]).replace("\\|", "|")
        found.setdefault(row["of"], {})[row["name"]] = words[0].upper() + words[1:]
    return found
