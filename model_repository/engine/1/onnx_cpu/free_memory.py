"""How much memory kept prefixes may take: what is free, less a tenth of all.

Every engine of a machine looks at the same numbers, so that they share what is free.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

SPARED = 0.1  # of the machine's memory, or of the container's
EVERY_S = 1.0
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def spare_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Free memory beyond SPARED, of the machine or of this container; negative if less is free."""
    kb = dict(line.split()[:2] for line in meminfo.read_text().splitlines())
    total, free = int(kb["MemTotal:"]) * 1024, int(kb["MemAvailable:"]) * 1024
    spare = free - int(SPARED * total)
    limit_file = cgroup / "memory.max"
    if limit_file.is_file() and (limit := limit_file.read_text().strip()).isdigit():
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        used = int((cgroup / "memory.current").read_text()) - int(stat["inactive_file"])
        spare = min(spare, int((1 - SPARED) * int(limit)) - used)
    return spare


class FreeMemory:
    """Looks once a second. clock: seconds, monotonic."""

    def __init__(
        self,
        spare: Callable[[], int] = spare_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spare = spare
        self._clock = clock
        self._look_at = float("-inf")
        self._limit = 0
        self._libc = ctypes.CDLL(None)

    def limit(self, used: int) -> int:
        """The bytes that a cache may have that has `used` of them now."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + EVERY_S
            if (spare := self._spare()) < 0:
                self._libc.malloc_trim(0)  # gives back what was evicted a second ago
                spare = self._spare()
            self._limit = max(0, used + spare)
        return self._limit
