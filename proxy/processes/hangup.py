"""SIGHUP: read the configuration again. A terminal that closes sends it, too, and means a stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator

from proxy.processes.signals import Stop


@contextlib.contextmanager
def on_hangup(act: Callable[[], None], stop: Stop) -> Iterator[None]:
    """Calls `act` on SIGHUP. Enter it inside the running event loop, on the main thread."""
    loop, had_terminal = asyncio.get_running_loop(), _has_terminal()

    def received() -> None:
        if had_terminal and not _has_terminal():
            stop.on_signal()
        else:
            act()

    loop.add_signal_handler(signal.SIGHUP, received)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _has_terminal() -> bool:
    """Whether stdin is a terminal that is still open: a closed one has no process group."""
    try:
        os.tcgetpgrp(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):  # no terminal; closed; no stdin at all
        return False
    return True
