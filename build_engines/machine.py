"""The machine, or the container, that a model is built for."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """The memory of this container, or of the machine where it has no limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))
    return memory
