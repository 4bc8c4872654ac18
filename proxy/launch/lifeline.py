"""Becomes the given command, in a session of its own, tied to its parent's life.

Run as a script: `python -I -S lifeline.py <parent pid> <command> ...`. A session of its own keeps
a terminal's Ctrl-C away; PR_SET_PDEATHSIG lets no kill -9 of the parent leave it behind. A script
and no `preexec_fn`: forking Python code beside gRPC's threads may deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def command(arguments: list[str]) -> list[str]:
    """The command line that runs these arguments as a child tied to the calling process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def main(parent: int, arguments: list[str]) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the tie was made
        sys.exit(1)
    os.execv(arguments[0], arguments)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
