"""The level of the log that an operator chose: it ends by itself, or with the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.domain.log_level import LogLevel
from proxy.telemetry.logs import ChosenLevel

DEBUG, INFO, ERROR = LogLevel.DEBUG, LogLevel.INFO, LogLevel.ERROR


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ChosenLevel, list[LogLevel]]]:
    """The level, and the levels that began to hold, in order."""
    applied: list[LogLevel] = []
    async with ChosenLevel(INFO, applied.append) as level:
        yield level, applied


@pytest.mark.anyio
async def test_the_configured_level_returns_when_the_time_is_over():
    async with running() as (level, applied):
        level.set(ERROR, 60.0)
        level.set(DEBUG, 0.01)
        assert level.in_force.level is DEBUG
        while applied != [ERROR, DEBUG, INFO]:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        assert (level.in_force.level, level.in_force.returns_in_s) == (INFO, None)


@pytest.mark.anyio
async def test_the_time_that_is_left_is_shown():
    async with running() as (level, _):
        level.set(DEBUG, 600.0)
        assert 590.0 < level.in_force.returns_in_s <= 600.0


@pytest.mark.anyio
async def test_the_configured_level_has_no_end():
    async with running() as (level, applied):
        level.set(DEBUG, 60.0)
        level.set(INFO, 60.0)
        assert (level.in_force.level, level.in_force.returns_in_s) == (INFO, None)
    assert applied == [DEBUG, INFO]


@pytest.mark.anyio
async def test_with_the_application_the_chosen_level_ends():
    async with running() as (level, applied):
        level.set(DEBUG, None)
    assert applied == [DEBUG, INFO]
