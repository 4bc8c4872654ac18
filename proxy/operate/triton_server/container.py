"""Finds a tritonserver that is installed on this machine, as in NVIDIA's containers."""

from __future__ import annotations

import shutil
from pathlib import Path

USUAL = Path("/opt/tritonserver/bin/tritonserver")


def tritonserver() -> Path | None:
    """The one on PATH, or at the path in NVIDIA's containers."""
    if found := shutil.which("tritonserver"):
        return Path(found)
    return USUAL if USUAL.is_file() else None
