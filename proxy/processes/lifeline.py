"""A parent for tritonserver that dies with the launcher and takes everything with it.

Run as a script: `python -I -S lifeline.py <launcher's pid> <command> ...`. It leads a session of
its own, which keeps a terminal's Ctrl-C away. Triton's stubs are in the same process group: one
that is busy would outlive a killed server, for it looks after its parent only between requests.
Ranks and workers that MPI started have groups of their own, and the GPUs' memory: they are found
as what is left below, since orphans come to this process.
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
LEFT_AT_MOST_S = 10.0  # a process that a driver holds may never end
FIRST_INHERITED = 3  # file descriptor after stdin, stdout and stderr


def command(arguments: list[str]) -> list[str]:
    """The command line that runs these arguments as a child tied to the calling process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def main(launcher: int, arguments: list[str]) -> int:
    """The command's exit status, negative for a signal."""
    os.setsid()
    signal.signal(signal.SIGUSR1, lambda *_: os.killpg(0, signal.SIGKILL))
    _on_parents_death(signal.SIGUSR1)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != launcher:  # it died before the tie was made
        return 1
    child = os.fork()
    if child == 0:
        _on_parents_death(signal.SIGKILL)
        os.execv(arguments[0], arguments)
    for told, number in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGUSR1, signal.SIGKILL)):
        signal.signal(told, partial(_pass_on, child, number))
    _close_what_is_inherited()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for told in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(told, signal.SIG_IGN)
    _end_what_is_left()
    return status


def _pass_on(child: int, number: signal.Signals, *_: object) -> None:
    """The parent's death is told once for each of its threads; the child may be gone by then."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _end_what_is_left() -> None:
    """The children of one that ends become this process's own, and are next."""
    until = time.monotonic() + LEFT_AT_MOST_S
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
        with contextlib.suppress(OSError):  # it has ended meanwhile
            _, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                yield int(path.parent.name)


def _close_what_is_inherited() -> None:
    """A socket that the command closes is closed, and not still open here."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= FIRST_INHERITED:
            os.closerange(number, number + 1)  # unlike `close`, passes over the listing's own


def _on_parents_death(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _end_like(status: int) -> None:
    """The launcher sees the same end as if the command were its own child."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    _end_like(main(int(sys.argv[1]), sys.argv[2:]))
