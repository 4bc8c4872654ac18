"""A parent process for a command, which ends with the launcher and kills all descendants.

Run as a script: `python -I -S lifeline.py <launcher's pid> <command> ...`. It leads a process group
of its own, so that a terminal's Ctrl-C does not reach it, but no session: Linux schedules a session
as one (autogroups, sched(7)), and a proxy that rarely runs would wait up to 0.3 s for a core that
long tokenizations use. Triton's stubs are in the same process group: a busy one would outlive a
killed server, because it checks its parent only between requests. Ranks and workers that MPI
started have their own groups and hold GPU memory; as orphans they become children of this process,
which finds them there. Used for tritonserver.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
MAX_CLEANUP_S = 10.0  # a process that is blocked in a driver may never end


def command(arguments: list[str]) -> list[str]:
    """The command line that runs these arguments as a child that ends with the calling process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def main(launcher: int, arguments: list[str]) -> int:
    """The command's exit status, negative for a signal."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGUSR1, lambda *_: os.killpg(0, signal.SIGKILL))
    _on_parents_death(signal.SIGUSR1)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != launcher:  # it died before the signal was set
        return 1
    child = os.fork()
    if child == 0:
        _on_parents_death(signal.SIGKILL)
        os.execvp(arguments[0], arguments)
    for received, sent in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGUSR1, signal.SIGKILL)):
        signal.signal(received, partial(_forward, child, sent))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    _kill_descendants()
    return status


def _forward(child: int, number: signal.Signals, *_: object) -> None:
    """May be called again when the child has ended: each of the parent's threads sends a signal."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _kill_descendants() -> None:
    """Children of a killed process become children of this one, and are killed next."""
    until = time.monotonic() + MAX_CLEANUP_S
    while time.monotonic() < until:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            _, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                yield int(path.parent.name)


def _on_parents_death(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _end_like(status: int) -> None:
    """Exits so that the launcher sees what it would see of its own child."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    _end_like(main(int(sys.argv[1]), sys.argv[2:]))
