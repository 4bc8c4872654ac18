"""Shared memory regions of Triton's Python backend: their names, and removing leftovers.

A region's name identifies its launcher, so a later start can tell the regions of a dead launcher
from those of a running server: by its pid and its start time, which rules out a later process with
that pid. The pid namespace is included, because containers may share /dev/shm but not their pids.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

SHM = Path("/dev/shm")
PROC = Path("/proc")


def prefix(port: int) -> str:
    """The name prefix of the regions of this launcher's server on that gRPC port."""
    return f"triton-openai-{_namespace()}-{os.getpid()}-{_started_ticks(os.getpid())}-{port}-"


def sweep(prefix: str, shm: Path = SHM) -> int:
    """Removes the regions whose names begin with the prefix; returns their number."""
    return _removed(shm.glob(f"{prefix}*"))


def sweep_dead(shm: Path = SHM) -> int:
    """Removes the regions of dead launchers in this pid namespace; returns their number."""
    return _removed(region for region in shm.iterdir() if _is_orphan(region.name))


def _is_orphan(region: str) -> bool:
    mark = re.match(r"triton-openai-(\d+)-(\d+)-(\d+)-\d+-", region)
    if mark is None:
        return False
    namespace, pid, started_ticks = map(int, mark.groups())
    return namespace == _namespace() and _started_ticks(pid) != started_ticks


def _namespace() -> int:
    return (PROC / "self" / "ns" / "pid").stat().st_ino


def _started_ticks(pid: int) -> int:
    """Field 22 of /proc/<pid>/stat (proc(5)); 0 if there is no such process."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def _removed(regions: Iterable[Path]) -> int:
    count = 0
    for region in regions:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            region.unlink()
            count += 1
    return count
