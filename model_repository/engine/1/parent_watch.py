"""Ends this model's process, a stub of Triton's, when its tritonserver has died.

The stub looks for its parent, too, but needs the GIL to end. A thread that sends a response to the
dead server keeps it forever (seen with 2.51, while streams ran). So another process watches:

usage: python parent_watch.py STUB'S_PID SERVER'S_PID
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 1.0


def start() -> subprocess.Popen[bytes]:
    """Called in the stub. The process ends with it."""
    python = shutil.which("python3") or sys.executable  # a stub's sys.executable may be no Python
    pids = str(os.getpid()), str(os.getppid())
    return subprocess.Popen([python, "-I", "-S", __file__, *pids], stdin=subprocess.DEVNULL)


def main(stub: int, server: int) -> None:
    while (parent := _parent(stub)) == server:
        time.sleep(POLL_S)
    if parent is not None:
        os.kill(stub, signal.SIGKILL)


def _parent(pid: int) -> int | None:
    """None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
