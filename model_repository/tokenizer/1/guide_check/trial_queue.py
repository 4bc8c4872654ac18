"""Runs two guide trials at a time, each in a fork that can be killed.

A slow guide does not delay quick ones: a trial that has used its share of CPU time gives way to one
that has used less, and starts again when it is its turn. A fork costs milliseconds; a new Python
process with xgrammar takes seconds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The CPU time after which a trial gives way, for each slot. The first slot takes the trial that has
# used the least CPU time, and of several the newest: it does not wait behind the others. The second
# slot takes the oldest trial.
SHARES_S = (0.15, 1.0)
WALL_S = 600.0  # of a fork: on a machine that is busy with other work its CPU time takes long
TOTAL = 2  # all trials of one guide together may take twice the limit of one
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
MB = 1_000_000
NICE = 10  # a tenth of the engine's weight, for a trial that has used the first share
Try = Callable[[str, str, Callable[[], None]], str | None]


@dataclass
class Trial:
    """used_s: CPU time of its interrupted forks. tries: how many of its forks may still crash.

    rounds: how often it has used up the share of the second slot.
    """

    number: int
    kind: str
    text: str
    used_s: float = 0.0
    tries: int = 1
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class _Fork:
    trial: Trial
    pid: int
    pipe: int

    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_A_SECOND


class TrialQueue:
    """For one thread. `try_out` runs in the forks, and calls its last argument when the guide is
    compiled: compile_s limits the CPU time until then, timeout_s that of the whole trial.
    """

    def __init__(
        self, try_out: Try, *, memory_bytes: int, timeout_s: float, compile_s: float
    ) -> None:
        self._try_out = try_out
        self._compile_s = compile_s
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._waiting: list[Trial] = []
        self._forks: dict[int, _Fork] = {}  # by slot

    @property
    def pipes(self) -> dict[int, int]:
        """Slots by the file descriptor that becomes readable when the slot's trial ends."""
        return {fork.pipe: slot for slot, fork in self._forks.items()}

    def add(self, trial: Trial) -> None:
        self._waiting.append(trial)

    def keep(self, numbers: Container[int]) -> None:
        """Drops the other trials that wait."""
        self._waiting = [trial for trial in self._waiting if trial.number in numbers]

    def schedule(self) -> None:
        """Interrupts trials that have used their share, and starts those whose turn it is."""
        for running in self._forks.values():
            if running.trial.used_s + running.cpu_s() > SHARES_S[0]:
                os.setpriority(os.PRIO_PROCESS, running.pid, os.nice(0) + NICE)
        for slot, share_s in enumerate(SHARES_S):
            if not self._waiting:
                return
            fork = self._forks.get(slot)
            if fork is not None and not self._gives_way(fork, share_s):
                continue
            if fork is not None:
                self._interrupt(slot, fork)
            trial = min(self._waiting, key=_least_used if slot == 0 else _oldest)
            self._waiting.remove(trial)
            self._forks[slot] = self._start(trial)

    def end(self, slot: int) -> tuple[int, str | None] | None:
        """The number and the result of a trial whose fork has ended; None to try it again."""
        fork = self._forks.pop(slot)
        with os.fdopen(fork.pipe, "rb") as pipe:
            result = pipe.read()
        _, status = os.waitpid(fork.pid, 0)
        trial = fork.trial
        if result:
            return trial.number, json.loads(result)
        limits_s: dict[int, float] = {
            signal.SIGVTALRM: self._compile_s,
            signal.SIGPROF: self._timeout_s,
            signal.SIGALRM: WALL_S,
        }
        if os.WIFSIGNALED(status) and (limit_s := limits_s.get(os.WTERMSIG(status))):
            return trial.number, f"it took longer than {limit_s:g} s to compile"
        if trial.tries:  # a fork that was killed from outside proves nothing about the guide
            trial.tries -= 1
            self.add(trial)
            return None
        limit = self._memory_bytes // MB
        return trial.number, f"it needs more than {limit} MB to compile, or is nested too deeply"

    def close(self) -> None:
        for fork in self._forks.values():
            os.kill(fork.pid, signal.SIGKILL)

    def _gives_way(self, fork: _Fork, share_s: float) -> bool:
        used_s = fork.cpu_s()
        return used_s > share_s and any(trial.used_s < used_s for trial in self._waiting)

    def _interrupt(self, slot: int, fork: _Fork) -> None:
        fork.trial.used_s += fork.cpu_s()
        del self._forks[slot]
        os.close(fork.pipe)
        os.kill(fork.pid, signal.SIGKILL)
        os.waitpid(fork.pid, 0)
        fork.trial.rounds += slot
        self.add(fork.trial)

    def _start(self, trial: Trial) -> _Fork:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid:
            os.close(theirs)
            return _Fork(trial, pid, ours)
        try:
            _close_all_but(1, 2, theirs)  # only the child process itself holds its sockets open
            self._limit(self._timeout_s * TOTAL - trial.used_s)
            result = self._result(trial)
            os.write(theirs, json.dumps(result).encode())
        finally:
            os._exit(0)

    def _limit(self, left_s: float) -> None:
        """Limits CPU time, and address space beyond what the process has now; no core files."""
        cpu_s = max(0.1, min(self._timeout_s, left_s))
        signal.setitimer(signal.ITIMER_PROF, cpu_s)  # its signal ends the process
        signal.setitimer(signal.ITIMER_VIRTUAL, self._compile_s)
        signal.setitimer(signal.ITIMER_REAL, WALL_S)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self._memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def _result(self, trial: Trial) -> str | None:
        try:
            return self._try_out(trial.kind, trial.text, _compiled)
        except MemoryError:
            return f"it needs more than {self._memory_bytes // MB} MB"


def _close_all_but(*kept: int) -> None:
    """Not by range: where a process may open a billion files, that can take minutes."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the listing's own is closed already
                os.close(int(name))


def _compiled() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _least_used(trial: Trial) -> tuple[float, int]:
    return trial.used_s, -trial.number


def _oldest(trial: Trial) -> tuple[float, int]:
    return trial.rounds, trial.number
