"""The level of the log that an operator chose: every worker follows, and it ends by itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.fixtures.stack import HANG_S
from triton_openai.proxy.domain.errors import StoreUnavailable
from triton_openai.proxy.domain.log_level import LogLevel
from triton_openai.proxy.telemetry.chosen_level import FILE, ChosenLevel

DEBUG, INFO, ERROR = LogLevel.DEBUG, LogLevel.INFO, LogLevel.ERROR


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Worker(ChosenLevel):
    """applied: the levels that began to hold, in order."""

    def __init__(self, folder: Path | None, clock=time.monotonic) -> None:
        self.applied: list[LogLevel] = []
        super().__init__(INFO, folder, self.applied.append, clock=clock, interval_s=0.001)

    async def has_applied(self, *levels: LogLevel) -> None:
        async def seen() -> None:
            while self.applied != list(levels):  # noqa: ASYNC110 - a thread reads the file
                await asyncio.sleep(0.001)

        await asyncio.wait_for(seen(), HANG_S)


@pytest.mark.anyio
async def test_every_worker_follows_and_one_that_starts_later_too(tmp_path):
    async with Worker(tmp_path) as one, Worker(tmp_path) as two:
        await one.set(DEBUG, None)
        assert one.applied == [DEBUG]
        await two.has_applied(DEBUG)
        async with Worker(tmp_path) as third:
            assert third.applied == [DEBUG]
        await two.set(ERROR, None)
        await one.has_applied(DEBUG, ERROR)
        assert (one.in_force, two.in_force.level) == (two.in_force, ERROR)


@pytest.mark.anyio
async def test_the_configured_level_returns_in_every_worker_when_the_time_is_over(tmp_path):
    now = [100.0]
    async with Worker(tmp_path, lambda: now[0]) as one, Worker(tmp_path, lambda: now[0]) as two:
        await one.set(DEBUG, 60.0)
        await two.has_applied(DEBUG)
        now[0] += 59.0
        assert (two.in_force.level, two.in_force.returns_in_s) == (DEBUG, 1.0)
        now[0] += 1.0
        await one.has_applied(DEBUG, INFO)
        await two.has_applied(DEBUG, INFO)
        assert (one.in_force.level, one.in_force.returns_in_s) == (INFO, None)


@pytest.mark.anyio
async def test_the_configured_level_has_no_end():
    async with Worker(None) as alone:
        await alone.set(DEBUG, 60.0)
        await alone.set(INFO, 60.0)
        assert (alone.in_force.level, alone.in_force.returns_in_s) == (INFO, None)
    assert alone.applied == [DEBUG, INFO]


@pytest.mark.anyio
async def test_with_the_application_the_chosen_level_ends():
    async with Worker(None) as alone:
        await alone.set(DEBUG, None)
    assert alone.applied == [DEBUG, INFO]


@pytest.mark.anyio
async def test_a_level_that_the_others_cannot_read_is_refused(tmp_path):
    async with Worker(tmp_path / "gone") as one:
        with pytest.raises(StoreUnavailable, match="not changed"):
            await one.set(DEBUG, None)
        assert one.applied == []


@pytest.mark.anyio
async def test_a_damaged_file_changes_nothing(tmp_path):
    async with Worker(tmp_path) as one:
        await one.set(DEBUG, None)
        for content in (b"", b'["loud", null]', b'["info", {}]', b"{}", b"5"):
            (tmp_path / FILE).write_bytes(content)
            await one._look()
        assert one.in_force.level is DEBUG
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
