"""The parent's queues: workers that die, disagree on the capacity, or lose their parent."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from tests.fixtures.schedulers import QUEUE, Caller, settled, ticket
from triton_openai.proxy.domain.errors import LimitsUnavailable
from triton_openai.proxy.ledger import wire
from triton_openai.proxy.scheduling import parent_queues
from triton_openai.proxy.scheduling.host_share import host_share
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.worker_scheduler import WorkerScheduler


@asynccontextmanager
async def parent(**limits: int) -> AsyncIterator[Callable[[], WorkerScheduler]]:
    with tempfile.TemporaryDirectory() as folder:
        async with parent_queues.served(QueueLimits(**limits), Path(folder)):
            yield lambda: WorkerScheduler(Path(folder) / parent_queues.SOCKET)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_workers_share_the_queue_and_a_dead_one_gives_back_its_rows(run: Callable[..., None]):
    async def main() -> None:
        async with parent() as worker, worker() as one:
            async with worker() as other:
                one.set_capacity(QUEUE, 2)
                await settled()
                held = [Caller(other, ticket()) for _ in range(4)]
                await settled()
                waits = [Caller(one, ticket()) for _ in range(3)]
                await settled()
                assert [each.runs for each in (*held, *waits)] == [True] * 2 + [False] * 5
            await settled(200)
            assert [each.runs for each in waits] == [True, True, False]
            assert isinstance(held[2].error, LimitsUnavailable)
            held[0].release()  # does nothing: its scheduler is closed
            await settled()
            assert not waits[2].runs
            waits[0].release()
            await settled()
            assert waits[2].runs

    run(main())


def test_a_worker_that_is_killed_gives_back_its_rows():
    async def main() -> None:
        async with parent() as worker, worker() as scheduler:
            scheduler.set_capacity(QUEUE, 2)
            await settled()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fixtures.scheduler_worker"),
                str(scheduler._path),
                stdout=PIPE,
            )
            assert process.stdout is not None
            assert await process.stdout.readline() == b"2 run\n"
            waits = [Caller(scheduler, ticket()) for _ in range(2)]
            await settled()
            assert not any(each.runs for each in waits)
            process.kill()
            await asyncio.gather(process.wait(), *(each.task for each in waits))
            assert all(each.runs for each in waits)

    asyncio.run(main())


def test_a_capacity_that_is_set_before_the_connection_is_sent_then():
    async def main() -> None:
        async with parent() as worker:
            early = worker()
            early.set_capacity(QUEUE, 1)
            async with early:
                callers = [Caller(early, ticket()) for _ in range(2)]
                await settled()
                assert [each.runs for each in callers] == [True, False]
                callers[1].task.cancel()
                await settled()

    asyncio.run(main())


def test_the_newest_capacity_counts_and_a_dead_workers_does_not():
    async def main() -> None:
        async with parent() as worker, worker() as one:
            one.set_capacity(QUEUE, 1)
            await settled()
            callers = [Caller(one, ticket()) for _ in range(4)]
            await settled()
            async with worker() as other:
                other.set_capacity(QUEUE, 3)
                await settled()
                assert [each.runs for each in callers] == [True, True, True, False]
            await settled(200)
            callers[0].release()
            callers[1].release()
            await settled()
            assert not callers[3].runs
            callers[2].release()
            await settled()
            assert callers[3].runs

    asyncio.run(main())


def test_without_the_parent_nothing_begins_and_that_is_logged_once():
    async def main() -> None:
        async with parent() as worker:
            scheduler = await worker().__aenter__()
            scheduler.set_capacity(QUEUE, 1)
            runs, waits = Caller(scheduler, ticket()), Caller(scheduler, ticket())
            await settled()
        with pytest.raises(LimitsUnavailable, match="cannot be reached"):
            await waits.task
        with pytest.raises(LimitsUnavailable):
            await Caller(scheduler, ticket()).task
        assert runs.runs
        runs.release()
        scheduler.set_capacity(QUEUE, 3)

    with capture_logs() as logs:
        asyncio.run(main())
    assert [each["event"] for each in logs] == ["queue: the parent of this worker is gone"]


def test_what_no_worker_says_ends_the_connection_and_not_the_parent():
    class Wrong(wire.Framed):
        def __init__(self) -> None:
            super().__init__()
            self.ended = asyncio.Event()

        def take(self, message: wire.Message) -> None:
            pass

        def end(self) -> None:
            self.ended.set()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with parent() as worker, worker() as scheduler:
            path = scheduler._path
            for message in ([99], [3, 12345, 1, None], "text"):
                _, wrong = await asyncio.get_running_loop().create_unix_connection(Wrong, str(path))
                wrong.send(message)
                await wrong.ended.wait()
            caller = Caller(scheduler, ticket())
            await caller.task

    asyncio.run(main())


def test_a_host_gets_its_part_of_the_capacity_rounded_up():
    assert host_share(64, proxies=1, workers=1) == 64
    assert host_share(64, proxies=4, workers=4) == 64
    assert host_share(64, proxies=8, workers=4) == 32
    assert host_share(7, proxies=2, workers=1) == 4
    assert host_share(0, proxies=2, workers=1) == 0
    assert host_share(64, proxies=0, workers=1) == 64


def test_a_scheduler_sets_its_hosts_part():
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / parent_queues.SOCKET
            async with (
                parent_queues.served(QueueLimits(), Path(folder)),
                WorkerScheduler(path, share=lambda streams: streams // 2) as scheduler,
            ):
                scheduler.set_capacity(QUEUE, 4)
                callers = [Caller(scheduler, ticket()) for _ in range(4)]
                await settled()
                assert [each.runs for each in callers] == [True, True, False, False]
                for each in callers:
                    each.task.cancel()
                await settled()

    asyncio.run(main())
