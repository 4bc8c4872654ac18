"""Four worker processes, 500 keys and 50 tenants above their limits, and kill -9 of a worker."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.fixtures import ledger_worker
from tests.fixtures.ledger_worker import KEY_LIMIT, RUNNING, SPAN_US, TENANT_LIMIT, TENANTS
from tests.unit.ledger.test_windows import in_any_window
from triton_openai.proxy.ledger import parent_ledger
from triton_openai.proxy.ledger.in_process import InProcessLedger, steady_us
from triton_openai.proxy.ledger.port import Grant, Meter, Refusal

SLOWER = 4  # the ledger's clock, so that a busy machine asks for more than the limits, too
WINDOWS = 3
SECONDS = (WINDOWS + 0.2) * SPAN_US * SLOWER / 1e6


class Recording(InProcessLedger):
    """Keeps when each meter of a window was granted."""

    def __init__(self) -> None:
        super().__init__(lambda: steady_us() // SLOWER)
        self.taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.refused = 0

    def take(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        before = self._clock()
        result = super().take(meters, amounts)
        self.refused += isinstance(result, Refusal)
        if isinstance(result, Grant) and any(amounts):
            for meter in meters[:2]:
                self.taken[meter.key].append((before, 1))
        return result


async def worker(socket: Path, seed: int, seconds: float) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fixtures.ledger_worker"),
        *(str(socket), str(seed), str(seconds)),
        stdout=PIPE,
    )


async def run(ledger: Recording) -> None:
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / parent_ledger.SOCKET
        async with parent_ledger.served(ledger, Path(folder)):
            workers = [await worker(socket, seed, SECONDS) for seed in range(4)]
            await asyncio.sleep(SECONDS / 2)
            workers[0].kill()
            workers.append(await worker(socket, 9, SECONDS / 2))
            asked = [await each.communicate() for each in workers]
            assert sum(int(output or 0) for output, _ in asked) > 2_000
            assert [each.returncode for each in workers] == [-9, 0, 0, 0, 0]


def test_never_one_request_too_many_and_99_percent_usable_with_kill_9_of_a_worker():
    ledger = Recording()
    asyncio.run(run(ledger))
    assert ledger.refused > 1_000
    for key, taken in ledger.taken.items():
        limit = KEY_LIMIT if ".k" in key else TENANT_LIMIT
        assert in_any_window(taken, SPAN_US) <= limit, key
    of_tenants = [taken for key, taken in ledger.taken.items() if ".k" not in key]
    assert len(of_tenants) == TENANTS
    assert sum(map(len, of_tenants)) >= 0.99 * TENANT_LIMIT * TENANTS * WINDOWS
    for tenant in range(TENANTS):  # the dead worker gave back what ran there
        assert ledger.take(ledger_worker.meters(tenant), [0, 0, 0]).look(2)[0] == RUNNING
