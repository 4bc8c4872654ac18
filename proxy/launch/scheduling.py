"""How the kernel shares few cores among the proxy, tritonserver and its Python models.

Each token wakes the next process on its way, and one that wakes takes the core from one that has
not finished. On two cores that is two or three switches a delta, and new requests wait behind what
runs already. Under SCHED_BATCH (sched(7)) a wake-up takes no core away; where a core is free it
changes nothing. Children and threads that are started later inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.settings import CpuScheduling

FEW_CORES = 4


def settle(wanted: CpuScheduling, say: Callable[[str], None]) -> None:
    """For this thread and what it starts; `auto` is batch on few cores.

    Raises:
        LaunchError: `batch` is asked for, and the system does not have or allow it.
    """
    cores = _cores()
    if wanted == "normal" or (wanted == "auto" and cores > FEW_CORES):
        return
    try:
        _batch()
    except (AttributeError, OSError) as error:
        if wanted == "batch":
            raise LaunchError(f"CPU_SCHEDULING=batch: the system refuses it ({error})") from error
        say(f"CPU scheduling stays normal on {cores} cores: batch is refused ({error})")
        return
    say(f"CPU scheduling: batch, for {cores} cores (CPU_SCHEDULING=normal undoes it)")


def _cores() -> int:
    """Those that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _batch() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
