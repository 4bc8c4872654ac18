"""SIGINT and SIGTERM: one asks to stop, a second one hurries."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stop:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def on_signal(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    async def finishes_first(self, work: Coroutine[Any, Any, None]) -> bool:
        """Runs the work until it is done (True) or a stop is asked for (False, it is cancelled)."""
        working = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                return True
            return False
        finally:
            asked.cancel()
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """To be entered inside the running loop, on the main thread."""
    stop, loop = Stop(), asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop.on_signal)
    try:
        yield stop
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def children_die_on_signals() -> Iterator[None]:
    """For a build: its child processes are killed, so that nothing waits for them."""
    before = {number: signal.signal(number, _kill_children) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_children(number: int, frame: FrameType | None) -> NoReturn:
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    raise SystemExit(128 + number)
