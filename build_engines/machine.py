"""The machine, or the container, that a model is built for."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CPU_INFO = Path("/proc/cpuinfo")
VNNI = frozenset({"avx512_vnni", "avx_vnni"})  # an x86 CPU has VNNI with either flag


def memory_bytes() -> int:
    """The memory of this container, or of the machine where it has no limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))
    return memory


def is_x86() -> bool:
    return platform.machine() == "x86_64"


def adds_int8_exactly(*, is_x86: bool, cpu_info: str) -> bool:
    """Whether ONNX Runtime's sums of 8-bit products are exact: on x86 without VNNI it adds them in
    16 bits, which saturate. cpu_info: the text of /proc/cpuinfo.
    """
    return not is_x86 or not VNNI.isdisjoint(cpu_info.split())
