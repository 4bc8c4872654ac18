"""Ends this Python model's process, the stub, when its tritonserver has died.

Called by `initialize` of each model. Triton's stub (2.51) looks for its parent only between
requests: one that waits for the dead server to take a response would wait forever.
"""

from __future__ import annotations

import os
import signal
import threading
import time

POLL_S = 1.0


def end_with_parent() -> None:
    """Polls: the kernel's PR_SET_PDEATHSIG would also report the end of the parent's thread."""
    thread = threading.Thread(target=_watch, args=(os.getppid(),), name="parent-watch", daemon=True)
    thread.start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
