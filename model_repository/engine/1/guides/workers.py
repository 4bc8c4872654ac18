"""Threads that follow guides and fill their masks while the model runs.

xgrammar releases the GIL but cannot be interrupted. When a guide keeps a thread for too long,
another thread takes over the remaining guides.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable

from guides.state import GuideState

PARALLEL_PAYS_S = 0.0005  # of CPU time a step; waking a thread costs 0.05 ms
SPARE_THREADS = 4  # in addition to `threads`; when all are busy, guided sequences wait


class GuideWorkers:
    """Called by one thread. Starts its first thread with the first guide."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._due: deque[GuideState] = deque()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        # thread: its state, its CPU clock, and the time on that clock when it began
        self._running: dict[int, tuple[GuideState, int, float]] = {}
        self._threads = 0
        self._lock = threading.Lock()

    def begin(self, states: Iterable[GuideState]) -> None:
        """Starts the work of states that are due, those with cheap masks first. Does not wait."""
        due = sorted((state for state in states if state.is_due), key=lambda state: state.last_s)
        if not due:
            return
        while not self._done.empty():
            self._done.get()
        for state in due:
            state.is_running = True
        self._due.extend(due)
        pays = sum(state.last_s for state in due) > PARALLEL_PAYS_S
        self._call(min(self._most, len(due)) if pays else 1)

    def wait(self, states: list[GuideState], wait_s: float, *, for_all: bool = True) -> None:
        """Waits until all of them are ready, or any of them, but at most `wait_s`."""
        enough = all if for_all else any
        end = time.monotonic() + wait_s
        while states and not enough(state.is_ready for state in states):
            try:
                self._done.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return

    def replace_busy_threads(self) -> None:
        """Calls another thread if all are busy and guides wait for one."""
        if self._due and len(self._running) >= self._threads:
            self._call(1)

    def running_s(self, state: GuideState) -> float:
        """CPU time of this state's current work."""
        for running, clock, began in list(self._running.values()):
            if running is state:
                return time.clock_gettime(clock) - began
        return 0.0

    def close(self) -> None:
        with self._lock:
            for _ in range(self._threads):
                self._calls.put(False)

    def _call(self, threads: int) -> None:
        with self._lock:
            busy = len(self._running)
            while self._threads < min(busy + threads, self._most + SPARE_THREADS):
                self._threads += 1
                threading.Thread(target=self._work, name="guide-worker", daemon=True).start()
        for _ in range(threads):
            self._calls.put(True)

    def _work(self) -> None:
        me = threading.get_ident()
        clock = time.pthread_getcpuclockid(me)
        while self._calls.get():
            while self._due:
                try:
                    state = self._due.popleft()
                except IndexError:
                    break
                self._running[me] = (state, clock, time.thread_time())
                state.work()
                del self._running[me]
                self._done.put(None)
        with self._lock:
            self._threads -= 1
