"""Watches the processes of Python models, the stubs. Called by `server`.

Triton does not restart a stub that died. Seen with 2.51: its running streams hang forever and each
new request fails, while the server reports that it is ready. So a dead stub counts as a dead
server. So does a tokenizer or detokenizer that stands still, by SIGSTOP for example: after a second
Triton gives its answers to other requests, see model_repository/detokenizer. An engine is
decoupled, so its answers find their requests, and the proxy notices that its streams are silent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

import psutil

from proxy.operate.triton_server.ranks import LLM_API_LAUNCHER

POLL_S = 0.25
STOPPED_S = 0.75  # how long a tokenizer or detokenizer may be stopped
COMM = 15  # characters that the kernel stores of a name
MPIRUN = ("mpirun", "orterun", "prterun")  # Open MPI 4 and 5 have links of the first name
# The processes between the lifeline and the stubs, see ranks.
STARTERS = frozenset(name[:COMM] for name in (*MPIRUN, LLM_API_LAUNCHER, "tritonserver"))


async def first_death(lifeline: int) -> str:
    """Returns when a process that tritonserver had started has died or stands still, with its
    description.
    """
    stubs: dict[psutil.Process, str] | None = None
    stopped_polls: Counter[psutil.Process] = Counter()
    while True:
        # No file descriptor is free, or a process ended while they were listed: the next poll sees.
        with contextlib.suppress(OSError, psutil.Error):
            stubs = _running(lifeline) if stubs is None else stubs
            for stub, name in stubs.items():
                if (status := _status(stub)) in (None, psutil.STATUS_ZOMBIE):
                    return f"its process {stub.pid} died: {name}"
                is_stopped = status == psutil.STATUS_STOPPED and "tokenizer" in name
                stopped_polls[stub] = stopped_polls[stub] + 1 if is_stopped else 0
                if stopped_polls[stub] * POLL_S > STOPPED_S:
                    return f"its process {stub.pid} stands still: {name}"
        await asyncio.sleep(POLL_S)


def _running(lifeline: int) -> dict[psutil.Process, str]:
    """The server's children, with their command lines. The server is the lifeline's first child.

    Under mpirun these are the ranks, and the processes that those start, down to the stubs.
    Children of other processes, such as a rank of the LLM API, are short-lived.
    """
    children = psutil.Process(lifeline).children()
    server = min(children, key=psutil.Process.create_time, default=None)  # the others are orphans
    return {} if server is None else dict(_below(server))


def _below(parent: psutil.Process) -> Iterator[tuple[psutil.Process, str]]:
    for child in parent.children():
        with contextlib.suppress(psutil.Error):  # it has ended
            yield child, " ".join(child.cmdline()[:2])
            if child.name()[:COMM] in STARTERS:
                yield from _below(child)


def _status(process: psutil.Process) -> str | None:
    """None if the process does not exist any more."""
    try:
        return str(process.status()) if process.is_running() else None
    except psutil.Error:
        return None


def descendants(lifeline: int) -> list[psutil.Process]:
    """All descendants, including orphans."""
    try:
        return list(psutil.Process(lifeline).children(recursive=True))
    except psutil.Error:
        return []


def name(process: psutil.Process) -> str:
    """The Triton model of a stub; of any other process its program."""
    with contextlib.suppress(psutil.Error):
        for part in process.cmdline():
            if part.endswith("/1/model.py"):
                return str(part.split("/")[-3])
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return ""
