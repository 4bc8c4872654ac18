"""Owners that die, and records that cannot be used."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import stat
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.idempotency.answering import (
    Generation,
    ask,
    asked,
    read,
    settled,
    until,
    whole,
)
from tests.unit.idempotency.conftest import LIMITS, QUOTAS
from triton_openai.proxy.idempotency import peers
from triton_openai.proxy.idempotency.answer import JoinRefused, Outcome, Reason, RecordsUnavailable
from triton_openai.proxy.idempotency.file_records import FILE, FileRecords
from triton_openai.proxy.idempotency.kept_tables import KeptTables
from triton_openai.proxy.idempotency.port import Elsewhere, Found, Mine, Records
from triton_openai.proxy.idempotency.redis_records import RedisRecords
from triton_openai.proxy.idempotency.relay import Relay
from triton_openai.proxy.idempotency.request import KeyedRequest
from triton_openai.proxy.telemetry.idempotency_metrics import IdempotencyMetrics


def sockets(folder: Path) -> list[Path]:
    return list(folder.glob("answers-*"))


def relay(records: Records) -> Relay:
    return Relay(records, LIMITS, IdempotencyMetrics(CollectorRegistry()))


def test_the_claim_of_a_worker_that_was_killed_is_taken_over(tmp_path: Path):
    async def run() -> None:
        tables, generation = KeptTables(tmp_path / FILE, QUOTAS), Generation()
        generation.step(5)
        dead = str(tmp_path / "nobody-listens-here")
        assert tables.claim(asked(), "old", dead, None, 0.0) == Mine("old")
        async with relay(FileRecords(None, tmp_path, QUOTAS)) as one:
            answer = await one.open(asked(), generation)
            assert answer.outcome is Outcome.GENERATED
            assert await read(answer) == whole()
        tables.close()

    asyncio.run(run())


def test_of_two_that_take_a_dead_claim_over_one_wins(tmp_path: Path):
    tables = KeptTables(tmp_path / FILE, QUOTAS)
    tables.claim(asked(), "old", "a", None, 0.0)
    assert tables.claim(asked(), "new", "b", "old", 0.0) == Mine("new")
    assert tables.claim(asked(), "newer", "c", "old", 0.0) == Elsewhere("b", "new")


class LateRecords(FileRecords):
    """The claim is in the file, and the process that made it does not know yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder, QUOTAS)
        self.has_claimed, self.may_return = asyncio.Event(), asyncio.Event()

    async def claim(self, request: KeyedRequest, token: str, dead: str | None) -> Found:
        found = await super().claim(request, token, dead)
        self.has_claimed.set()
        await self.may_return.wait()
        return found


def test_a_claim_is_not_taken_over_before_its_owner_knows_of_it(tmp_path: Path):
    async def run() -> None:
        records, generation = LateRecords(tmp_path), Generation()
        generation.step(10)
        async with relay(records) as one, relay(FileRecords(None, tmp_path, QUOTAS)) as other:
            first = asyncio.create_task(ask(one, generation))
            await records.has_claimed.wait()
            second = asyncio.create_task(ask(other, generation))
            await until(lambda: records._server._tasks or second.done())
            await asyncio.sleep(0)  # the request is read
            records.may_return.set()
            assert await asyncio.gather(first, second) == [whole(), whole()]
        assert generation.runs == 1

    asyncio.run(run())


def test_the_claim_of_an_owner_that_is_too_busy_to_accept_is_not_taken_over(tmp_path: Path):
    async def run() -> None:
        path = str(tmp_path / "busy")
        with socket.socket(socket.AF_UNIX) as owner, socket.socket(socket.AF_UNIX) as full:
            owner.bind(path)
            owner.listen(0)
            full.connect(path)
            with pytest.raises(JoinRefused) as refused:
                await peers.join(path, asked(), "token", tries=2)
        assert refused.value.reason is Reason.NOT_REACHED

    asyncio.run(run())


def test_the_claim_of_an_owner_that_hangs_up_is_not_taken_over_while_it_listens(tmp_path: Path):
    async def run() -> None:
        path = str(tmp_path / "moody")
        calls = 0

        def hang_up(_: object, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            writer.close()

        server = await asyncio.start_unix_server(hang_up, path)
        with pytest.raises(JoinRefused) as refused:
            await peers.join(path, asked(), "token", tries=3)
        server.close()
        assert (refused.value.reason, calls) == (Reason.NOT_REACHED, 3)

    asyncio.run(run())


def test_two_proxies_with_one_folder_share_a_running_answer(tmp_path: Path):
    async def run() -> None:
        generation = Generation()
        generation.step(10)
        one, other = (FileRecords(tmp_path, None, QUOTAS) for _ in range(2))
        async with relay(one) as first, relay(other) as second:
            answers = await asyncio.gather(*(ask(each, generation) for each in (first, second)))
        assert answers == [whole(), whole()]
        assert generation.runs == 1
        assert not one._socket.parent.exists()

    asyncio.run(run())


def open_together(folder: Path, barrier: Barrier, failed: Synchronized[int]) -> None:
    for number in range(25):
        barrier.wait()
        try:
            KeptTables(folder / f"{number}.sqlite", QUOTAS).close()
        except sqlite3.Error:
            with failed.get_lock():
                failed.value += 1


def test_processes_may_open_a_new_file_at_once(tmp_path: Path):
    context = get_context("spawn")
    barrier, failed = context.Barrier(4), context.Value("i", 0)
    openers = [
        context.Process(target=open_together, args=(tmp_path, barrier, failed)) for _ in range(4)
    ]
    for each in openers:
        each.start()
    for each in openers:
        each.join()
    assert [each.exitcode for each in openers] == [0] * 4
    assert failed.value == 0


def test_the_file_is_its_users_alone(tmp_path: Path):
    KeptTables(tmp_path / FILE, QUOTAS).claim(asked(), "old", "a", None, 0.0)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_full_disk_costs_the_copy_and_not_the_answer(tmp_path: Path):
    async def run() -> None:
        records = FileRecords(None, tmp_path, QUOTAS)
        async with relay(records) as one:
            generation = Generation()
            answer = await one.open(asked(), generation)
            await records._call(lambda: records._open()._db.execute("PRAGMA query_only = ON"))
            generation.step(5)
            assert await read(answer) == whole()
            await settled(one)
            with pytest.raises(RecordsUnavailable):
                await one.open(asked("other"), generation)

    asyncio.run(run())


def test_a_socket_that_says_nonsense_harms_nobody(tmp_path: Path):
    async def run() -> None:
        async with relay(FileRecords(None, tmp_path, QUOTAS)) as one:
            (socket,) = sockets(tmp_path)
            for nonsense in (b"", b"A", b"Z\x00\x00\x00\x00", b"A\x00\x00\x00\x02[]", b"\xff" * 9):
                reader, writer = await asyncio.open_unix_connection(str(socket))
                writer.write(nonsense)
                writer.write_eof()
                assert await reader.read() == b""
                writer.close()
            generation = Generation()
            generation.step(5)
            assert await ask(one, generation) == whole()

    asyncio.run(run())


@needs_redis
def test_while_redis_is_away_requests_learn_it_and_running_answers_go_on(redis: RedisServer):
    async def run() -> None:
        records = RedisRecords(redis.url, QUOTAS, answer_bytes=1_000_000, timeout_s=1, lease_ms=400)
        async with relay(records) as one:
            generation = Generation()
            answer = await one.open(asked(), generation)
            redis.kill()
            with pytest.raises(RecordsUnavailable):
                await one.open(asked("other"), generation)
            generation.step(5)
            assert await read(answer) == whole()
            await settled(one)
            redis.start()
            generation.step(5)
            assert await ask(one, generation, asked("other")) == whole()
            assert generation.runs == 2

    asyncio.run(run())


@needs_redis
def test_the_claim_of_a_host_that_is_gone_ends_with_its_lease(redis: RedisServer):
    async def run() -> None:
        options = {"answer_bytes": 1_000_000, "timeout_s": 5, "lease_ms": 300}
        gone = RedisRecords(redis.url, QUOTAS, **options)
        async with gone:
            assert await gone.claim(asked(), "old", None) == Mine("old")
        async with relay(RedisRecords(redis.url, replace(QUOTAS), **options)) as one:
            generation = Generation()
            generation.step(5)
            answer = await one.open(asked(), generation)
            assert answer.outcome is Outcome.JOINED
            await answer.aclose()
            await asyncio.sleep(0.4)
            assert await ask(one, generation) == whole()

    asyncio.run(run())
