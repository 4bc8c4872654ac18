"""The machine, or the container, that a model is built for."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CPU_INFO = Path("/proc/cpuinfo")


def memory_bytes() -> int:
    """The memory of this container, or of the machine where it has no limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))
    return memory


def has_int8_dot() -> bool:
    """Whether this CPU adds products of 8 bits in 32 bits."""
    return is_int8_dot(platform.machine(), CPU_INFO.read_text() if CPU_INFO.is_file() else "")


def is_int8_dot(architecture: str, cpu_info: str) -> bool:
    """cpu_info: the text of /proc/cpuinfo. The engine's onnx_cpu/cpu.py has the same test."""
    is_x86 = architecture.lower() in ("x86_64", "amd64")
    return not is_x86 or not {"avx512_vnni", "avx_vnni"}.isdisjoint(cpu_info.split())
