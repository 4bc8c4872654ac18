"""Shared memory regions of Triton's Python backend: whose they are, and the sweep of leftovers.

A region's name begins with its launcher's mark, so a later start can tell a dead launcher's
regions from those of a server that lives.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

SHM = Path("/dev/shm")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A process that launches servers. The start time tells it from a later one of the same pid.

    The pid namespace is part of it: containers may share /dev/shm and not see each other's pids.
    """

    namespace: int
    pid: int
    started_ticks: int

    def prefix(self, port: int) -> str:
        """Of the regions of the server on that gRPC port."""
        return f"triton-openai-{self.namespace}-{self.pid}-{self.started_ticks}-{port}-"


def this_launcher() -> Launcher:
    return Launcher(
        namespace=pid_namespace(),
        pid=os.getpid(),
        started_ticks=_started_ticks(os.getpid(), PROC) or 0,
    )


def pid_namespace() -> int:
    return (PROC / "self" / "ns" / "pid").stat().st_ino


def sweep(prefix: str, shm: Path = SHM) -> int:
    """Removes the regions whose names begin with the prefix, and says how many."""
    return sum(_remove(region) for region in shm.glob(f"{prefix}*"))


def sweep_dead(shm: Path = SHM, proc: Path = PROC) -> int:
    """Removes the regions of launchers of this pid namespace that live no more."""
    namespace = pid_namespace()
    return sum(_remove(region) for region in shm.iterdir() if _is_orphan(region, namespace, proc))


def _is_orphan(region: Path, namespace: int, proc: Path) -> bool:
    mark = re.match(r"triton-openai-(\d+)-(\d+)-(\d+)-\d+-", region.name)
    if mark is None:
        return False
    where, pid, started_ticks = (int(part) for part in mark.groups())
    return where == namespace and _started_ticks(pid, proc) != started_ticks


def _started_ticks(pid: int, proc: Path) -> int | None:
    """Field 22 of /proc/<pid>/stat (proc(5)); None where there is no such process."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _remove(region: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        region.unlink()
        return True
    return False
