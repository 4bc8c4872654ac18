"""Waits, on a terminal for a key, too. Keys need no Enter."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIT = "q"
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
    """Reads the descriptor itself: sys.stdin could keep a key, which select would not see."""
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], seconds)
    if not ready:
        return None
    return os.read(descriptor, 1).decode(errors="replace") or QUIT  # nothing: the terminal is gone
