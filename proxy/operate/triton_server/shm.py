"""Shared memory regions of Triton's Python backend: their names, and removing leftovers.

A region's name identifies its launcher, so a later start can tell the regions of a dead launcher
from those of a running server.
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
    """A process that launches servers. Its start time rules out a later process with its pid.

    The pid namespace is included, because containers may share /dev/shm but not their pids.
    """

    namespace: int
    pid: int
    started_ticks: int

    def prefix(self, port: int) -> str:
        """The name prefix of the regions of the server on that gRPC port."""
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
    """Removes the regions whose names begin with the prefix; returns their number."""
    return sum(_remove(region) for region in shm.glob(f"{prefix}*"))


def sweep_dead(shm: Path = SHM, proc: Path = PROC) -> int:
    """Removes the regions of dead launchers in this pid namespace; returns their number."""
    namespace = pid_namespace()
    return sum(_remove(region) for region in shm.iterdir() if _is_orphan(region, namespace, proc))


def _is_orphan(region: Path, namespace: int, proc: Path) -> bool:
    mark = re.match(r"triton-openai-(\d+)-(\d+)-(\d+)-\d+-", region.name)
    if mark is None:
        return False
    where, pid, started_ticks = (int(part) for part in mark.groups())
    return where == namespace and _started_ticks(pid, proc) != started_ticks


def _started_ticks(pid: int, proc: Path) -> int | None:
    """Field 22 of /proc/<pid>/stat (proc(5)); None if there is no such process."""
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
