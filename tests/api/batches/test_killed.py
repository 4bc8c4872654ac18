"""A batch whose processes are killed between any two steps, and one that two processes run."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest

from proxy.api.batches import runner as module
from proxy.api.batches.batch_input import BatchInput
from proxy.api.batches.batch_store import BatchStore, Opened, new_batch_id
from proxy.api.batches.files import Files, new_id
from proxy.api.batches.runner import BatchRunner
from proxy.domain.batch_line import current_line
from proxy.domain.identity import ANYONE
from proxy.domain.usage import UsageRow
from proxy.settings import Settings
from proxy.state.answer import digest
from proxy.state.memory_streams import MemoryStreams
from proxy.state.objects import FolderObjects
from proxy.state.redis_connection import RedisConnection
from proxy.state.redis_streams import RedisStreams
from proxy.state.streams import Claim, StreamKey, StreamLimits
from proxy.telemetry.metrics import Metrics
from tests.doubles.sandbox import InProcess
from tests.doubles.usage import KeptUsage
from tests.fixtures.application import NONE
from tests.fixtures.redis_server import needs_redis, running

TENANT, URL = "tenants/acme", "/v1/chat/completions"
LIMITS = StreamLimits(keep_s=0, kept_bytes=0)
AT_ONCE = 3
CHANGES = ("create", "write", "copy", "delete")


class Dying:
    """Objects of a process that is killed at its nth change, before or after it is made."""

    def __init__(self, inner: FolderObjects, dies_at: int | None, *, is_made: bool) -> None:
        self._inner, self._left, self._is_made = inner, dies_at, is_made
        self.died = asyncio.Event()

    def __getattr__(self, name: str):
        found = getattr(self._inner, name)
        return self._changing(found) if name in CHANGES else found

    def _changing(self, change):
        async def changed(*args):
            if self._left == 0:
                if self._is_made and not self.died.is_set():
                    await change(*args)
                self.died.set()
                await asyncio.Event().wait()
            if self._left is not None:
                self._left -= 1
            return await change(*args)

        return changed


class Charge:
    def __init__(self, tokens: int) -> None:
        self._tokens, self.settled = tokens, None

    async def row(self) -> UsageRow:
        return UsageRow(
            **{"tenant": "acme", "key_id": "k", "model": "m", "at": datetime.now(timezone.utc)},
            **{"requests": 1, "errors": 0, "prompt_tokens": self._tokens, "cached_tokens": 0},
            **{"output_tokens": 1, "reasoning_tokens": 0, "queue_s": 0.0, "cost": 1.0},
        )

    def settle(self, *, counts: bool) -> None:
        assert self.settled is None
        self.settled = counts


class Engine:
    """An application that answers each line, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.charges: list[Charge] = []

    async def __call__(self, scope, receive, send) -> None:
        number = json.loads((await receive())["body"])["n"]
        self.asked.append(number)
        await asyncio.sleep(0.001 * (number % 3))
        charge = current_line.get().charge = Charge(number)
        self.charges.append(charge)
        await send({"type": "http.response.start", "status": 400 if number == 3 else 200})
        await send({"type": "http.response.body", "body": b'{"answer": %d}' % len(self.asked)})


@asynccontextmanager
async def process(objects, usage, engine, claims=None):
    settings = Settings(models_file=NONE)
    made = BatchRunner(
        BatchStore(objects, most_open=9),
        Files(objects, settings),
        claims or MemoryStreams(LIMITS),
        engine,
        usage,
        BatchInput(objects, InProcess(), most_bytes=1000, most_lines=1000),
        Metrics().batches,
        at_once=lambda: AT_ONCE,
    )
    async with made:
        yield made


async def opened(folder: Path, count: int) -> Opened:
    objects, id = FolderObjects(folder), new_id("file-")
    texts = (
        json.dumps({"custom_id": f"c{n}", "method": "POST", "url": URL, "body": {"n": n}}) + "\n"
        for n in range(count)
    )

    async def pieces():
        for text in texts:
            yield text.encode()

    await objects.write(f"{TENANT}/files/{id}", pieces())
    batch = Opened(
        id=new_batch_id(),
        tenant=TENANT,
        created_at=int(time.time()),
        endpoint=URL,
        input_file_id=id,
        metadata=None,
        keep_s=9999,
        caller=ANYONE,
        caller_name="",
    )
    await BatchStore(objects, most_open=9).open(batch, f"{TENANT}/files/{id}")
    return batch


async def ended(folder: Path, batch: Opened) -> None:
    objects = FolderObjects(folder)
    for _ in range(10_000):
        if await objects.read(batch.mark) is None:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def check(folder: Path, batch: Opened, usage: KeptUsage, count: int) -> None:
    """Each line once: in the output or the error file, in order, and in the usage."""
    objects = FolderObjects(folder)
    body = await BatchStore(objects, most_open=9).ended(batch)
    assert body["status"] == "completed"
    assert body["request_counts"] == {"total": count, "completed": count - 1, "failed": 1}
    found = {}
    for name in ("output_file_id", "error_file_id"):
        text = await objects.read(f"{TENANT}/files/{body[name]}")
        found[name] = [json.loads(each)["custom_id"] for each in text.splitlines()]
    assert found["error_file_id"] == ["c3"]
    assert found["output_file_id"] == [f"c{n}" for n in range(count) if n != 3]
    assert sorted(row.prompt_tokens for row in usage.rows) == [*range(count)]
    assert body["usage"]["input_tokens"] == sum(range(count))
    left = {path.partition("/")[0] for path, _ in await objects.below(TENANT)}
    assert left == {"about", "batches", "ended", "files"}
    assert len(await objects.below(f"{TENANT}/files")) == 3


@pytest.fixture(autouse=True)
def _is_fast(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.02)
    monkeypatch.setattr(module, "LOOK_S", 0.02)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_process_may_be_killed_at_any_change(tmp_path, is_made):
    count = 7

    async def dies_at(step: int) -> bool:
        """Whether it did."""
        folder, usage = tmp_path / str(step), KeptUsage()
        batch = await opened(folder, count)
        objects, engine = Dying(FolderObjects(folder), step, is_made=is_made), Engine()
        over = asyncio.create_task(ended(folder, batch))
        async with process(objects, usage, engine):
            dead = asyncio.create_task(objects.died.wait())
            await asyncio.wait((dead, over), return_when=asyncio.FIRST_COMPLETED, timeout=20)
        dead.cancel()
        async with process(FolderObjects(folder), usage, engine):
            await asyncio.wait_for(over, 20)
        await check(folder, batch, usage, count)
        assert len(engine.asked) <= count + 3  # what was under way when it was killed
        return objects.died.is_set()

    async def all_steps() -> int:
        step = 0
        while await dies_at(step):
            step += 1
        return step

    assert asyncio.run(all_steps()) > 2 * count


def test_two_processes_whose_claims_are_lost_keep_one_answer(tmp_path):
    async def run() -> None:
        usage, engine = KeptUsage(), Engine()
        batch = await opened(tmp_path, 40)
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(process(FolderObjects(tmp_path), usage, engine))
            await asyncio.wait_for(ended(tmp_path, batch), 60)
        await check(tmp_path, batch, usage, 40)
        assert sum(each.settled for each in engine.charges) == 40
        assert all(each.settled is not None for each in engine.charges)

    asyncio.run(run())


class Refusing(Engine):
    """It refuses each line at first."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most_running = 0

    async def __call__(self, scope, receive, send) -> None:
        body = await receive()
        if (number := json.loads(body["body"])["n"]) not in self.asked:
            self.asked.append(number)
            await send({"type": "http.response.start", "status": 503})
            await send({"type": "http.response.body", "body": b""})
            return

        async def again():
            return body

        self.running += 1
        self.most_running = max(self.running, self.most_running)
        await asyncio.sleep(0.02)
        await super().__call__(scope, again, send)
        self.running -= 1


def test_a_line_that_is_asked_again_waits_for_a_place(tmp_path):
    async def run() -> None:
        usage, engine = KeptUsage(), Refusing()
        batch = await opened(tmp_path, 100)
        async with process(FolderObjects(tmp_path), usage, engine):
            await asyncio.wait_for(ended(tmp_path, batch), 60)
        await check(tmp_path, batch, usage, 100)
        assert engine.most_running <= AT_ONCE

    asyncio.run(run())


@needs_redis
def test_processes_share_a_batch_by_redis(tmp_path):
    async def run(url: str) -> None:
        usage, engines = KeptUsage(), [Engine(), Engine()]
        batch = await opened(tmp_path, 200)
        async with AsyncExitStack() as stack:
            for engine in engines:
                redis = RedisConnection(url, timeout_s=1)
                await stack.enter_async_context(redis)
                claims = RedisStreams(redis, "batches", LIMITS)
                own = process(FolderObjects(tmp_path), usage, engine, claims)
                await stack.enter_async_context(own)
            await asyncio.wait_for(ended(tmp_path, batch), 60)
        await check(tmp_path, batch, usage, 200)
        asked = [len(engine.asked) for engine in engines]
        assert sum(asked) == 200
        assert min(asked) > 20

    with running(tmp_path) as server:
        asyncio.run(run(server.url))


class Publishing(FolderObjects):
    """While files are listed, one of them is published."""

    async def below(self, folder):
        if folder == f"{TENANT}/files":
            await Files(self, Settings(models_file=NONE)).publish(
                TENANT, self.new, name="a", size=1, purpose="batch", keep_s=9999, at=self.at
            )
        return await super().below(folder)


@pytest.mark.parametrize(("at", "stays"), [(0, True), (-9999, False)])
def test_a_file_that_is_published_while_old_ones_are_removed_stays(tmp_path, at, stays):
    async def run() -> None:
        objects, contents = Publishing(tmp_path), iter([b"x"])

        async def pieces():
            for each in contents:
                yield each

        objects.new, objects.at = new_id("file-"), int(time.time()) + at
        files = Files(objects, Settings(models_file=NONE))
        await files.create(TENANT, objects.new, pieces())
        await files.remove_expired(TENANT)
        assert (await objects.read(f"{TENANT}/files/{objects.new}") is not None) is stays

    asyncio.run(run())


@needs_redis
def test_a_batch_waits_for_a_chunk_that_another_process_has_not_charged(tmp_path):
    async def run(url: str) -> None:
        usage, engine = KeptUsage(), Engine()
        batch = await opened(tmp_path, 7)  # a chunk for each line
        key = StreamKey(id=digest((batch.id, "2")), tenant=digest((TENANT,)))
        others = Claim(key, patience_s=0)
        objects = FolderObjects(tmp_path)
        store = BatchStore(objects, most_open=9)
        async with RedisConnection(url, timeout_s=1) as redis:
            claims = RedisStreams(redis, "batches", LIMITS)
            assert await claims.claim(others, {}) is None
            async with process(FolderObjects(tmp_path), usage, engine, claims):
                looks = 0  # of the runner, after all the others
                for _ in range(1_000):
                    assert (await claims.renew(others))[0]
                    assert await store.ended(batch) is None
                    if len(await store.done(batch)) == 6:
                        looks += 1
                        kept = await objects.read(batch.line(1, 1))  # any answer
                        await objects.create(batch.line(2, 2), kept)
                    if looks == 20:
                        break
                    await asyncio.sleep(module.PAUSE_S)
                assert sorted(engine.asked) == [0, 1, 3, 4, 5, 6]
                await claims.release(others)
                await asyncio.wait_for(ended(tmp_path, batch), 60)
        body = await store.ended(batch)
        assert body["request_counts"] == {"total": 7, "completed": 6, "failed": 1}
        assert len(usage.rows) == 7

    with running(tmp_path) as server:
        asyncio.run(run(server.url))
