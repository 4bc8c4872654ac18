"""SIGINT and SIGTERM: the first requests a stop, the second hurries it. SIGHUP: read the
configuration again; a terminal that closes sends it, too, and means a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """The state of a stop. Made by `stop_on_signals`, awaited by whatever runs."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()

    def on_signal(self) -> None:
        (self.hurried if self.requested.is_set() else self.requested).set()

    async def unless_requested(self, work: Coroutine[Any, Any, None]) -> bool:
        """Returns True when the work is done; False if a stop was requested, which cancels it."""
        return await _first(work, self.requested)

    async def unless_hurried(self, work: Coroutine[Any, Any, None]) -> bool:
        """The same for the second signal."""
        return await _first(work, self.hurried)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Enter it inside the running event loop, on the main thread."""
    stop, loop = Stop(), asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop.on_signal)
    try:
        yield stop
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)


async def _first(work: Coroutine[Any, Any, None], event: asyncio.Event) -> bool:
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if is_done := working.done():
            working.result()
        return is_done
    finally:
        waiting.cancel()
        working.cancel()
        await asyncio.wait({working})


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
