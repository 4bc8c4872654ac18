"""What the processes of a stack hold: memory, descriptors, threads."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil

from tests.fixtures.stack import Stack

GROWN_BYTES = 20_000_000  # of a part, in the second half of a soak
MORE_DESCRIPTORS = MORE_THREADS = 4  # thousands of requests would leave more


@dataclass(slots=True)
class Footprint:
    """Of each part of a stack: the proxy with its launcher, tritonserver, and the Python models."""

    rss_bytes: Counter[str] = field(default_factory=Counter)
    descriptors: Counter[str] = field(default_factory=Counter)
    threads: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, stack: Stack) -> Footprint:
        found, top = cls(), psutil.Process(stack.process.pid)
        for process in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # a fork in which a guide was tried has ended
                found._add(_part(process), process)
        return found

    def _add(self, part: str, process: psutil.Process) -> None:
        rss_bytes, descriptors = process.memory_info().rss, process.num_fds()
        self.rss_bytes[part] += rss_bytes
        self.descriptors[part] += descriptors
        self.threads[part] += process.num_threads()


def _part(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    if "model_repository/" in command:
        return command.split("model_repository/")[1].split("/")[0]
    if process.name() == "tritonserver":
        return "tritonserver"
    if "sandbox_main" in command or "anyio.to_process" in command:
        return "sandboxes"
    return "proxy"


def growth(samples: Sequence[Footprint]) -> dict[str, float]:
    """Bytes by which the last quarter of the samples is above the second one: the first one is
    left to caches that fill up.
    """
    quarter = max(1, len(samples) // 4)
    middle, last = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    return {
        part: median(one.rss_bytes[part] for one in last)
        - median(one.rss_bytes[part] for one in middle)
        for part in samples[-1].rss_bytes
    }


def faults(samples: Sequence[Footprint], before: Footprint, after: Footprint) -> list[str]:
    """`before` and `after` are of an idle stack, the samples of all the time between."""
    found = [
        f"{part} has grown by {grown / 1e6:.0f} MB in the second half"
        for part, grown in growth(samples).items()
        if grown > GROWN_BYTES
    ]
    for what, least in (("descriptors", MORE_DESCRIPTORS), ("threads", MORE_THREADS)):
        was, is_now = getattr(before, what), getattr(after, what)
        found += [
            f"{part} has {is_now[part]} {what}, and had {was[part]}"
            for part in is_now
            if is_now[part] - was[part] > least
        ]
    return found
