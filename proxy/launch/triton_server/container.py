"""A tritonserver that is installed on this machine, as in NVIDIA's container; else the wheel's."""

from __future__ import annotations

import shutil
from pathlib import Path

USUAL = Path("/opt/tritonserver/bin/tritonserver")


def tritonserver() -> Path | None:
    """The one on PATH, or where NVIDIA's containers have it."""
    if found := shutil.which("tritonserver"):
        return Path(found)
    return USUAL if USUAL.is_file() else None
