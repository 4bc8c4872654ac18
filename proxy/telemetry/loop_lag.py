"""Measures how late the event loop runs its timers, and finds the request that blocked it.

Run by `app`. A thread takes a stack sample while the loop is late. Python lets that thread run
within 5 ms, or as soon as a C function that holds the GIL has returned.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from traceback import walk_stack
from typing import Any

import structlog
from prometheus_client import Histogram

from proxy.telemetry.request_log import TASK

logger = structlog.get_logger(__name__)

BEAT_S = 0.05
WARN_S = 0.05
LOG_EVERY_S = 60.0
FRAMES = 6  # of the stack, innermost first


class LoopLag:
    """`warn_s`: the lag above which a warning is logged, at most once a minute.

    A lag that this process' own CPU time does not explain is the host's: it is measured only.
    """

    def __init__(self, histogram: Histogram, *, warn_s: float = WARN_S) -> None:
        self._histogram = histogram
        self._warn_s = warn_s
        self._beats = 0
        self._due = 0.0
        self._cpu_s = 0.0  # of this process, at the last beat
        self._sampled = -1  # the beat that was due when the sample was taken
        self._sample: dict[str, Any] = {}
        self._next_log = 0.0
        self._unlogged = 0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measures the running loop until the end of the `with`."""
        loop = asyncio.get_running_loop()
        self._next_beat(loop)
        arguments = (loop, threading.get_ident())
        thread = threading.Thread(target=self._watch, args=arguments, name="loop-lag", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            if self._timer is not None:
                self._timer.cancel()
            thread.join()

    def _next_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cpu_s = time.process_time()
        self._due = time.monotonic() + BEAT_S
        self._timer = loop.call_later(BEAT_S, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        lag_s = max(0.0, time.monotonic() - self._due)
        cpu_s = time.process_time() - self._cpu_s
        self._histogram.observe(lag_s)
        # Work that spends this much would be as late, or late enough, on an idle host, too. During
        # the first beat it is the server's, which starts.
        if self._beats and lag_s >= self._warn_s and cpu_s >= min(lag_s, BEAT_S + self._warn_s):
            self._warn(lag_s, cpu_s)
        self._beats += 1
        self._next_beat(loop)

    def _warn(self, lag_s: float, cpu_s: float) -> None:
        now = time.monotonic()
        if now < self._next_log:
            self._unlogged += 1
            return
        logger.warning(
            "event loop late",
            lag_ms=round(lag_s * 1000),
            cpu_ms=round(cpu_s * 1000),
            **self._sample if self._sampled == self._beats else {},
            unlogged=self._unlogged,
            advice="report it if it recurs under normal load; until then give the proxy more CPU, "
            "or run more proxies",
        )
        self._next_log, self._unlogged = now + LOG_EVERY_S, 0

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        """Runs in its own thread. Takes one sample for each late beat, as early as possible."""
        while not self._stopped.wait(self._warn_s):
            beat = self._beats
            is_late = time.monotonic() - self._due >= self._warn_s / 2
            if is_late and self._sampled != beat:
                self._sample = _sample(loop, loop_thread)
                self._sampled = beat


def _sample(loop: asyncio.AbstractEventLoop, loop_thread: int) -> dict[str, Any]:
    """Fields of the warning that name what blocks the loop. Without a task, it is a callback, such
    as the HTTP parser's.
    """
    task = asyncio.current_task(loop)
    name = "none" if task is None else task.get_name()
    stack = islice(walk_stack(sys._current_frames()[loop_thread]), FRAMES)
    frames = tuple(
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in stack
    )
    if not name.startswith(TASK):
        return {"task": name, "frames": frames}
    request_id, _, path = name.removeprefix(TASK).partition(" ")
    return {"request_id": request_id, "path": path, "frames": frames}
