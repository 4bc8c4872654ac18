"""One build at a time in a folder of artifacts: several pods may share one volume."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = ".build.lock"


@contextmanager
def held(artifacts: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other process builds there. The lock ends with the process that holds it."""
    with (artifacts / FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds in {artifacts}: waiting until it has finished")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
