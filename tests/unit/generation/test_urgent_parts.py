"""Streams that took over a row: with which priority an engine gets them."""

from __future__ import annotations

import asyncio

import pytest

from proxy.domain.completion import fold
from tests.doubles.dying_engine import DyingEngine
from tests.doubles.engine import CAPABILITIES, FixedCatalog
from tests.unit.generation.test_failover import TEXT, Held
from tests.unit.generation.test_row_permit import served, turns


@pytest.mark.parametrize(("asked", "sent"), [(None, 1), (0, 1), (-3, -2)])
def test_what_took_over_a_row_goes_before_its_class_until_it_yields(asked, sent):
    async def run() -> None:
        stand, scheduler = await served(engine := Held(3))
        scheduler.takes_over = True
        task = stand.begin(priority=asked)
        await engine.is_held.wait()
        scheduler.permits[0].preempt()
        await turns()
        engine.may_go_on.set()
        assert fold(await task).text == TEXT
        assert [one.priority for one in engine.requests] == [sent, asked]

    asyncio.run(run())


def test_an_engine_that_takes_no_priority_gets_none():
    async def run() -> None:
        engine = DyingEngine(TEXT)
        catalog = FixedCatalog(capabilities=CAPABILITIES - {"priority"})
        stand, scheduler = await served(engine, catalog=catalog)
        scheduler.takes_over = True
        await stand.begin()
        assert [one.priority for one in engine.requests] == [None]

    asyncio.run(run())
