"""Parsers of upstream's tools, made of their recorded arguments: TOOLS of tests/upstream/record.py.

They take no abbreviations. A default or a choice that is an expression in upstream's source is
left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from build_engines.upstream.signatures import RecordedClasses
from tests.upstream.record import TOOLS

TYPES = {"str": str, "int": int, "float": float, "Path": Path}
ENUM = "enum_type("


def recorded() -> dict[str, Any]:
    """Tool -> sources and arguments."""
    return dict(json.loads(TOOLS.read_text(encoding="utf-8")))


def parser(tool: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    for row in recorded()[tool]["arguments"]:
        made.add_argument(*row["flags"], **_keywords(row))
    return made


def _keywords(row: dict[str, Any]) -> dict[str, Any]:
    known = {
        name: value
        for name, value in row.items()
        if name not in {"flags", "type"} and not _is_expression(value)
    }
    kind = row.get("type", "str")
    if kind.startswith(ENUM):
        name = kind.removeprefix(ENUM).removesuffix(")")
        known["choices"] = list(RecordedClasses.read().rows[name]["members"].values())
    elif "action" not in row:
        known["type"] = TYPES[kind]
    return known


def _is_expression(value: Any) -> bool:
    return isinstance(value, dict) and "expression" in value
