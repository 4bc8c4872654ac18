"""The mask of a batch: which tokens each row may continue with.

Threads follow guides and fill their masks while the model runs. xgrammar releases the GIL but
cannot be interrupted. When a guide keeps a thread for too long, another thread takes over the
remaining guides.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from guides.state import BITS, GuideState

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


ALL = np.int32(-1)
STEP_WAIT_S = 0.005  # for guides that are not ready when the model is
ALONE_WAIT_S = 0.02  # if no row at all is ready
Mask = npt.NDArray[np.int32]


class GuideMask:
    """For one thread."""

    def __init__(self, vocab_size: int, *, threads: int) -> None:
        """`vocab_size` is the width of the logits; `threads` masks are filled at once."""
        self._buffer = np.empty((0, -(-vocab_size // BITS)), dtype=np.int32)
        self._workers = GuideWorkers(threads)

    def begin(self, states: Sequence[GuideState | None]) -> None:
        """Starts to fill the masks that are due, while the model runs."""
        self._workers.begin(state for state in states if state is not None)

    def late_rows(self, states: Sequence[GuideState | None]) -> set[int]:
        """The rows whose masks are not ready after a short wait; they must skip this step.

        It does not wait for a guide that has used up its patience, unless no row is ready.
        """
        self.begin(states)
        unready = _unready(states)
        if not unready:
            return set()
        self._wait([state for state in unready.values() if state.patience_s > 0])
        unready = _unready(states)
        if len(unready) == len(states):
            self._workers.wait(list(unready.values()), ALONE_WAIT_S, for_all=False)
            unready = _unready(states)
        if unready:
            self._workers.replace_busy_threads()
        return set(unready)

    def _wait(self, states: list[GuideState]) -> None:
        """Charges each guide with the part of the wait during which it was working."""
        began = time.monotonic()
        self._workers.wait(states, STEP_WAIT_S)
        waited_s = time.monotonic() - began
        for state in states:
            worked_s = state.last_s if state.is_ready else self._workers.running_s(state)
            state.waited_s += min(waited_s, worked_s)

    def is_too_slow(self, state: GuideState) -> bool:
        """Whether the guide has taken more CPU time than it may."""
        return state.is_too_slow(0.0 if state.is_ready else self._workers.running_s(state))

    def of(self, states: Sequence[GuideState | None]) -> Mask | None:
        """[rows, ceil(vocab_size / 32)]; token t is allowed if bit t % 32 of word t // 32 is set.

        All states must be ready. Rows without a guide, or with a terminated one, are all ones; if
        all rows are, there is no mask. A row of zeros is a dead end: no token of the vocabulary
        can follow. The array is valid until the next call.
        """
        if all(state is None or state.is_terminated for state in states):
            return None
        if len(states) > len(self._buffer):
            self._buffer = np.empty((len(states), self._buffer.shape[1]), dtype=np.int32)
        mask = self._buffer[: len(states)]
        for row, state in zip(mask, states, strict=True):
            row[:] = ALL if state is None or state.is_terminated else state.mask[0]
        return mask

    def close(self) -> None:
        self._workers.close()


def _unready(states: Sequence[GuideState | None]) -> dict[int, GuideState]:
    """By row."""
    return {
        row: state for row, state in enumerate(states) if state is not None and state.is_unready
    }
