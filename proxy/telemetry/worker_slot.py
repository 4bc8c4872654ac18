"""Several processes keep their metrics in files of one folder, and each answers for all.

prometheus_client names the files after process ids, so that every restart of a worker would leave
more of them. Here they have the number of the worker: the next process counts on where the one
before stopped, and there are never more files than for as many workers as run at once.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

from prometheus_client import values
from prometheus_client.multiprocess import mark_process_dead


def occupy(slot: int, folder: Path) -> TextIO:
    """Has this process count in the files of the slot, from its first metric on. Called by a
    worker, which keeps the returned file: it is locked until the process ends, and another process
    for the same slot waits here, because two would overwrite each other's counts.

    PROMETHEUS_MULTIPROC_DIR must be the folder.
    """
    lock = (folder / f"metrics-{slot}.lock").open("w")
    fcntl.lockf(lock, fcntl.LOCK_EX)  # unlike flock's, no child process inherits this lock
    vacate(slot, folder)
    counting = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
    values.ValueClass = counting
    return lock


def vacate(slot: int, folder: Path) -> None:
    """Removes the gauges of a process that has ended; its counters stay. Called by the parent."""
    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]
