"""A folder that appears only when it is complete, and records the key of its inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_FILE = "build.json"


def is_made(folder: Path, key: str) -> bool:
    """Whether the folder exists and has this key."""
    try:
        stored = json.loads((folder / KEY_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(stored == {"key": key})


@contextmanager
def made(folder: Path, key: str) -> Iterator[Path]:
    """Yields an empty folder to fill, which replaces the old one at the end."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    yield unfinished
    (unfinished / KEY_FILE).write_text(json.dumps({"key": key}))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
