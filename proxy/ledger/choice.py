"""Which ledger the settings mean. Called by `app`."""

from __future__ import annotations

from pathlib import Path

from triton_openai.proxy.ledger.in_process import InProcessLedger
from triton_openai.proxy.ledger.outage import OutageMode
from triton_openai.proxy.ledger.parent_ledger import SOCKET
from triton_openai.proxy.ledger.port import Ledger
from triton_openai.proxy.ledger.worker_ledger import WorkerLedger


def ledger_of(
    url: str | None,
    outage: str,
    shared: Path | None,
    *,
    workers: int,
    timeout_s: float,
) -> Ledger:
    """url: of Redis. outage: an OutageMode. shared: the folder of a parent and its workers.
    workers: how many these are."""
    if url is not None:
        from triton_openai.proxy.ledger.redis_ledger import RedisLedger  # takes 0.2 s to import

        return RedisLedger(url, OutageMode(outage), timeout_s=timeout_s, workers=workers)
    return InProcessLedger() if shared is None else WorkerLedger(shared / SOCKET)
