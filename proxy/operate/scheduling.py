"""Sets the kernel's scheduling policy for machines with few cores. Called by `run`.

Each token wakes one process after the other, and a process that wakes preempts one that has not
finished. On two cores that means two or three switches per delta, and new requests wait longest.
Under SCHED_BATCH (sched(7)) a process that wakes preempts nothing; with a free core it makes no
difference. Children and threads that are started later inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

FEW_CORES = 4


def cores() -> int:
    """The number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def set_batch() -> None:
    """Raises AttributeError or OSError where the system has no such policy or refuses it."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def apply(
    say: Callable[[str], None],
    count: Callable[[], int] = cores,
    choose: Callable[[], None] = set_batch,
) -> None:
    """Chooses `batch` on few cores, for this thread and all that it starts."""
    found = count()
    if found > FEW_CORES:
        return
    try:
        choose()
    except (AttributeError, OSError) as error:
        say(f"CPU scheduling stays normal on {found} cores: batch is refused ({error})")
        return
    say(f"CPU scheduling: batch, for {found} cores")
