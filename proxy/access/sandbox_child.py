"""What a child of process_sandbox.py runs around a call. Imports little: each child keeps it."""

from __future__ import annotations

import functools
import importlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
NICE = 10  # a tenth of the CPU weight of the event loop and the engine


def import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def run_limited(call: Callable[[], Result], cpu_s: float, memory_bytes: int) -> Result:
    """SIGPROF's default action ends the process, even inside C code."""
    _limit_process(memory_bytes)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@functools.cache
def _limit_process(memory_bytes: int) -> None:
    """Limits the process's address space to what it has now plus `memory_bytes`, forbids core
    files, and lowers its CPU priority below that of the streams. Works once a process.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
