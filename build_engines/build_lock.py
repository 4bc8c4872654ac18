"""One build at a time in a folder of artifacts: several pods may share one volume."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(artifacts: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Locks the folder itself, and waits until no other process has it locked.

    The lock ends with the process that holds it.
    """
    folder = os.open(artifacts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds in {artifacts}: waiting until it has finished")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
