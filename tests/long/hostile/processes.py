"""The server's processes: which they are, and their CPU time and memory, from /proc."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
OURS = (
    "proxy.cli",
    "proxy.operate",
    "proxy.app",
    "uvicorn",
    "triton-openai",
)


@dataclass(frozen=True, slots=True)
class Processes:
    """proxies: those that hold event loops. triton: tritonserver and its Python backends."""

    proxies: tuple[int, ...]
    triton: tuple[int, ...] = field(default=())

    @property
    def are_alive(self) -> bool:
        return all(psutil.pid_exists(pid) and not _is_zombie(pid) for pid in self.proxies)


def of_port(port: int) -> Processes:
    """Those behind a listening port of this machine. Raises LookupError where there are none."""
    listening = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    found = sorted(pid for pid in listening if pid)
    if not found:
        raise LookupError(f"no process of this machine listens on port {port}")
    return of_pids(found)


def of_pids(pids: list[int]) -> Processes:
    """The proxies with these ids, and the tritonserver that the same launcher started."""
    top = psutil.Process(pids[0])
    while (parent := top.parent()) is not None and any(
        word in " ".join(parent.cmdline()) for word in OURS
    ):
        top = parent
    servers = [one for one in top.children(recursive=True) if one.name() == "tritonserver"]
    triton = [one.pid for server in servers for one in (server, *server.children(recursive=True))]
    return Processes(tuple(pids), tuple(triton))


def engine_of(watched: Processes, model: str) -> int | None:
    """The process of a model's engine, None where it is not on this machine."""
    for pid in watched.triton:
        with contextlib.suppress(psutil.Error):
            if f"{model}_engine/" in " ".join(psutil.Process(pid).cmdline()):
                return pid
    return None


def rss(pid: int) -> int:
    """Bytes; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def tree_rss(pids: tuple[int, ...]) -> int:
    return sum(map(rss, pids))


def cpu_s(pid: int) -> float:
    """User and system time of the process, without its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK_S


def loop_times(pid: int) -> tuple[float, float]:
    """Seconds that the main thread, which has the event loop, ran and waited for a CPU."""
    with contextlib.suppress(OSError, ValueError):
        ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
        return int(ran) / 1e9, int(waited) / 1e9
    return 0.0, 0.0


def pressure_s() -> float:
    """Seconds in which some task of the machine waited for a CPU; 0 where it is not reported."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/pressure/cpu").read_text().split()[4].partition("=")[2]) / 1e6
    return 0.0


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True
