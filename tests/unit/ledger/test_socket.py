"""The parent's ledger: a worker that dies gives back what it held; cancelled calls leak nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from tests.fixtures.ledgers import Clock
from tests.unit.ledger.test_ledgers import gauge, window
from triton_openai.proxy.ledger import parent_ledger
from triton_openai.proxy.ledger.in_process import InProcessLedger
from triton_openai.proxy.ledger.port import Grant, LedgerUnavailable, Refusal
from triton_openai.proxy.ledger.worker_ledger import WorkerLedger

METERS = [window("t.w", 1_000), gauge("t.g", 2)]


@asynccontextmanager
async def parent() -> AsyncIterator[Callable[[], WorkerLedger]]:
    with tempfile.TemporaryDirectory() as folder:
        async with parent_ledger.served(InProcessLedger(Clock()), Path(folder)):
            yield lambda: WorkerLedger(Path(folder) / parent_ledger.SOCKET)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(500):
        if await holds():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_workers_share_the_state_and_a_dead_one_gives_back(run: Callable[..., None]):
    """Workers run uvloop, whose transports are not asyncio's."""

    async def main() -> None:
        async with parent() as worker, worker() as one:
            async with worker() as other:
                assert isinstance(await one.reserve(METERS, [1, 1]), Grant)
                assert isinstance(await other.reserve(METERS, [1, 1]), Grant)
                assert isinstance(await one.reserve(METERS, [1, 1]), Refusal)

            async def has_room() -> bool:
                return isinstance(await one.reserve(METERS, [1, 1]), Grant)

            await until(has_room)

    run(main())


def test_a_call_that_is_cancelled_at_any_moment_holds_nothing():
    async def main() -> None:
        async with parent() as worker, worker() as ledger:
            for turns in range(40):
                call = asyncio.ensure_future(ledger.reserve(METERS, [1, 1]))
                for _ in range(turns % 8):
                    await asyncio.sleep(0)
                call.cancel()
                result = (await asyncio.gather(call, return_exceptions=True))[0]
                if isinstance(result, Grant):
                    ledger.settle(result, [1, 0])

            async def is_free() -> bool:
                result = await ledger.reserve(METERS, [0, 0])
                return result.look(1)[0] == 2

            await until(is_free)

    asyncio.run(main())


def test_without_the_parent_nothing_is_granted():
    async def main() -> None:
        async with parent() as worker:
            ledger = await worker().__aenter__()
            call = asyncio.ensure_future(ledger.reserve(METERS, [1, 1]))
            assert isinstance(await call, Grant)

        async def is_lost() -> bool:
            try:
                await ledger.reserve(METERS, [1, 1])
            except LedgerUnavailable:
                return True
            return False

        await until(is_lost)

    asyncio.run(main())


def test_a_full_parent_says_so():
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                parent_ledger.served(InProcessLedger(Clock(), most=1), Path(folder)),
                WorkerLedger(Path(folder) / parent_ledger.SOCKET) as ledger,
            ):
                with pytest.raises(LedgerUnavailable, match="no room"):
                    await ledger.reserve(METERS, [1, 1])

    asyncio.run(main())
