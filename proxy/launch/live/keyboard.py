"""Waits, on a terminal for a key, too. Keys need no Enter."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], str | None]
"""Waits so many seconds at most; returns the key that ended it."""


@contextmanager
def keyboard() -> Iterator[Wait]:
    """The terminal is as before when the `with` ends."""
    import termios  # not on Windows, where the rest of the command line can be imported
    import tty

    stream = sys.stdin
    before = termios.tcgetattr(stream)
    try:
        tty.setcbreak(stream)
        yield _key
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


def without_keys(seconds: float) -> None:
    time.sleep(seconds)


def _key(seconds: float) -> str | None:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else None
