"""Ends a tritonserver's stubs, this model's and its neighbors', when that server has died; and the
processes that this model's stub has started, when it has died: vLLM's would run on, with the GPU's
memory.

A stub looks for its parent, too, but may hang: a thread that sends a response to the dead server
keeps the GIL forever, and a mutex in shared memory stays locked if the server died with it (both
seen with 2.51, while streams ran). So another process watches:

usage: python parent_watch.py STUB'S_PID SERVER'S_PID
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

POLL_S = 1.0
SERVERS_PID = 5  # the argument of a stub's command line: StubLauncher::Launch of python_backend


def start() -> subprocess.Popen[bytes]:
    """Called in the stub. The process ends with it."""
    python = shutil.which("python3") or sys.executable  # a stub's sys.executable may be no Python
    pids = str(os.getpid()), str(os.getppid())
    return subprocess.Popen([python, "-I", "-S", __file__, *pids], stdin=subprocess.DEVNULL)


def main(stub: int, server: int) -> None:
    binary = os.readlink(f"/proc/{stub}/exe")
    started: dict[int, str] = {}
    while (parent := _parent(stub)) == server:
        started = {pid: _born(pid) for pid in _descendants(stub)}
        time.sleep(POLL_S)
    if parent is not None:
        os.kill(stub, signal.SIGKILL)
    for pid, born in started.items():
        if born and born == _born(pid):  # else another process has its number now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for orphan in _orphans(binary, server):
        os.kill(orphan, signal.SIGKILL)


def _orphans(binary: str, server: int) -> Iterator[int]:
    """Stubs that the server started, and that it is no longer above. A process that a living stub
    has forked, as vLLM's engine may be, has the stub's command line.
    """
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            is_stub = arguments[SERVERS_PID : SERVERS_PID + 1] == [b"%d" % server]
            is_stub = is_stub and os.readlink(process / "exe") == binary and pid != os.getpid()
        except OSError:  # it has ended, or belongs to another user
            continue
        if is_stub and _parent(pid) is not None and server not in _ancestors(pid):
            yield pid


def _descendants(pid: int) -> Iterator[int]:
    """Without this process."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                if child != os.getpid():
                    yield child
                    yield from _descendants(child)


def _ancestors(pid: int) -> Iterator[int]:
    while parent := _parent(pid):
        yield parent
        pid = parent


def _parent(pid: int) -> int | None:
    """None: there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _born(pid: int) -> str:
    """When it started, in ticks of the machine's clock; empty for no such process."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields behind the name, see proc(5); none for a process that has ended.

    Triton does not collect a stub's exit status, so a dead one stays in the table.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
