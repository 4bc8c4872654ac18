"""Guides that are tried out, two at a time, each in a fork that can be killed.

So that a slow guide holds up no quick one: one that has had its share of CPU time gives way to one
that has had less, and begins anew when it is its turn again. A fork costs milliseconds, where a
new Python with xgrammar takes seconds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# CPU time that a trial has before it gives way. The first slot takes the guide that has had the
# least, the newest of several: it does not wait for those before it. The second takes the oldest.
SHARES_S = (0.15, 1.0)
WALL_S = 600.0  # of a fork: on a machine that is busy with other work its CPU time takes long
TOTAL = 2  # times the limit of one trial: so much all trials of one guide may take
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
MB = 1_000_000
NICE = 10  # a tenth of the weight that the engine has
Try = Callable[[str, str], str | None]


@dataclass
class Trial:
    """`used_s`: CPU time of trials that were broken off. `tries`: left after a fork that died.

    rounds: how often it had the whole share of the second slot.
    """

    number: int
    kind: str
    text: str
    used_s: float = 0.0
    tries: int = 1
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class _Running:
    trial: Trial
    pid: int
    pipe: int

    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_A_SECOND


class TrialQueue:
    """For one thread. `try_out` runs in the forks."""

    def __init__(self, try_out: Try, *, memory_bytes: int, timeout_s: float) -> None:
        self._try_out = try_out
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._waiting: list[Trial] = []
        self._running: dict[int, _Running] = {}  # by slot

    @property
    def is_crowded(self) -> bool:
        """Whether a trial waits for another to give way."""
        return bool(self._waiting)

    @property
    def pipes(self) -> dict[int, int]:
        """Slot by the file descriptor that is readable when its trial has ended."""
        return {one.pipe: slot for slot, one in self._running.items()}

    def add(self, trial: Trial) -> None:
        self._waiting.append(trial)

    def schedule(self) -> None:
        """Breaks off trials that have had their share, and starts those whose turn it is."""
        for slot, share_s in enumerate(SHARES_S):
            if not self._waiting:
                return
            running = self._running.get(slot)
            if running is not None and not self._gives_way(running, share_s):
                continue
            if running is not None:
                self._break_off(slot, running)
            trial = min(self._waiting, key=_least_used if slot == 0 else _oldest)
            self._waiting.remove(trial)
            self._running[slot] = self._fork(trial)

    def end(self, slot: int) -> tuple[int, str | None] | None:
        """A trial has ended: its number, and what is wrong with the guide; None to try it again."""
        running = self._running.pop(slot)
        with os.fdopen(running.pipe, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(running.pid, 0)
        trial = running.trial
        if told:
            return trial.number, json.loads(told)
        limits_s: dict[int, float] = {signal.SIGPROF: self._timeout_s, signal.SIGALRM: WALL_S}
        if os.WIFSIGNALED(status) and (limit_s := limits_s.get(os.WTERMSIG(status))):
            return trial.number, f"it took longer than {limit_s:g} s to compile"
        if trial.tries:  # one that was killed from outside says nothing about the guide
            trial.tries -= 1
            self.add(trial)
            return None
        limit = self._memory_bytes // MB
        return trial.number, f"it needs more than {limit} MB to compile, or is nested too deeply"

    def close(self) -> None:
        for running in self._running.values():
            os.kill(running.pid, signal.SIGKILL)

    def _gives_way(self, running: _Running, share_s: float) -> bool:
        used_s = running.cpu_s()
        return used_s > share_s and any(one.used_s < used_s for one in self._waiting)

    def _break_off(self, slot: int, running: _Running) -> None:
        running.trial.used_s += running.cpu_s()
        del self._running[slot]
        os.close(running.pipe)
        os.kill(running.pid, signal.SIGKILL)
        os.waitpid(running.pid, 0)
        running.trial.rounds += slot
        self.add(running.trial)

    def _fork(self, trial: Trial) -> _Running:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid:
            os.close(theirs)
            return _Running(trial, pid, ours)
        os.close(0)  # the connection, whose end says that the parent has ended
        try:
            self._limit(self._timeout_s * TOTAL - trial.used_s)
            answer = self._answer(trial)
            os.write(theirs, json.dumps(answer).encode())
        finally:
            os._exit(0)

    def _limit(self, left_s: float) -> None:
        """CPU time; address space beyond what the process has now; and no core file."""
        cpu_s = max(0.1, min(self._timeout_s, left_s))
        signal.setitimer(signal.ITIMER_PROF, cpu_s)  # its signal ends the process
        signal.setitimer(signal.ITIMER_REAL, WALL_S)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self._memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(NICE)

    def _answer(self, trial: Trial) -> str | None:
        try:
            return self._try_out(trial.kind, trial.text)
        except MemoryError:
            return f"it needs more than {self._memory_bytes // MB} MB"


def _least_used(trial: Trial) -> tuple[float, int]:
    return trial.used_s, -trial.number


def _oldest(trial: Trial) -> tuple[float, int]:
    return trial.rounds, trial.number
