"""Reads JSON files that other programs wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError


def read_object(path: Path) -> dict[str, Any]:
    """Raises BuildError if the file cannot be read or is not a JSON object."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    if not isinstance(parsed, dict):
        raise BuildError(f"{path} is not a JSON object")
    return parsed
