"""Owners that die, and records that cannot be used."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.idempotency.answering import Generation, ask, asked, read, settled, whole
from tests.unit.idempotency.conftest import LIMITS, QUOTAS
from triton_openai.proxy.idempotency.answer import Outcome, RecordsUnavailable
from triton_openai.proxy.idempotency.file_records import FILE, FileRecords
from triton_openai.proxy.idempotency.kept_tables import KeptTables
from triton_openai.proxy.idempotency.port import Elsewhere, Mine, Records
from triton_openai.proxy.idempotency.redis_records import RedisRecords
from triton_openai.proxy.idempotency.relay import Relay
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
