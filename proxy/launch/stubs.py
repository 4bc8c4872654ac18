"""The Python models' own processes: Triton goes on without one that died, and never starts it anew.

Seen with 2.51: after the death of an engine's stub its running streams hang for ever and each new
request fails, while the server says it is ready. So a dead stub counts as a dead server.
"""

from __future__ import annotations

import asyncio
import contextlib

import psutil

POLL_S = 0.25


async def first_death(lifeline: int) -> str:
    """Waits until a process that tritonserver had started is gone, and says which."""
    stubs = _running(lifeline)
    while True:
        for stub, name in stubs.items():
            if not _lives(stub):
                return f"its process {stub.pid} is gone: {name}"
        await asyncio.sleep(POLL_S)


def _running(lifeline: int) -> dict[psutil.Process, str]:
    """Children of the server, which is the lifeline's only child, with their command lines."""
    found = {}
    with contextlib.suppress(psutil.Error):
        for server in psutil.Process(lifeline).children():
            for stub in server.children():
                with contextlib.suppress(psutil.Error):
                    found[stub] = " ".join(stub.cmdline()[:2])
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
