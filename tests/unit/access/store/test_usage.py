"""usage: batches of several writers add up exactly, whatever becomes of the database."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import date, datetime, timedelta, timezone

import pytest
from sqlalchemy import func, select

from proxy.access.store import usage
from proxy.access.store.database import Database
from proxy.access.store.store import Store
from proxy.access.store.tables import USAGE_BATCHES
from proxy.access.store.usage import Usage, UsagePeriod, as_csv
from proxy.domain.errors import ErrorCode, StoreUnavailable
from tests.unit.access.store.samples import PEPPER, opened, used

pytestmark = pytest.mark.anyio

MARCH = UsagePeriod(first=date(2026, 3, 1), last=date(2026, 3, 31))


async def test_a_day_ends_at_midnight_utc_and_sums_are_of_tenant_key_and_model(store):
    west = timezone(timedelta(hours=-5))
    store.usage.add(used())
    store.usage.add(used(tenant="\0\ud800"))
    store.usage.add(used(errors=1, queue_s=0.5, cost=0.25))
    store.usage.add(used(at=datetime(2026, 3, 1, 20, tzinfo=west)))  # March 2 in UTC
    store.usage.add(used(key_id="k2", tenant="beta"))
    await store.usage.flush()
    store.usage.add(used())
    await store.usage.flush()
    found = await store.usage.report(MARCH)
    assert found[0] == {
        "day": "2026-03-01",
        "tenant": "acme",
        "key": "k1",
        "model": "demo",
        "requests": 3,
        "errors": 1,
        "prompt_tokens": 30,
        "cached_tokens": 12,
        "output_tokens": 21,
        "reasoning_tokens": 9,
        "queue_s": 1.0,
        "cost": 1.25,
    }
    assert [(row["day"][-2:], row["tenant"], row["requests"]) for row in found] == [
        *(("01", "acme", 3), ("01", "beta", 1), ("01", "\ufffd?", 1), ("02", "acme", 1)),
    ]


async def test_several_writers_add_to_the_same_rows(url):
    """With more rows than one statement takes."""
    writers, models = 4, usage.ROWS_PER_STATEMENT + 50

    async def write(reverse: bool) -> None:
        async with opened(url) as store:
            for _ in range(3):
                names = [f"m{number:04}" for number in range(models)]
                for name in reversed(names) if reverse else names:
                    store.usage.add(used(model=name))
                while True:  # a busy machine's lock may take too long; the rows are kept
                    with suppress(StoreUnavailable):
                        await store.usage.flush()
                        break

    async with opened(url) as store:
        await asyncio.gather(*(write(bool(number % 2)) for number in range(writers)))
        (whole,) = await store.usage.report(MARCH, by=())
        assert whole["requests"] == writers * 3 * models
        assert whole["output_tokens"] == 7 * whole["requests"]


class LostAnswers(Database):
    """Commits, and then reports that the connection was lost, as a network can do."""

    loses = True

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[object]:
        async with super().writing() as connection:
            yield connection
        if self.loses:
            raise StoreUnavailable(detail="the answer to the commit was lost")


async def test_a_batch_whose_commit_was_not_answered_is_added_once(url):
    async with opened(url) as store:
        database = LostAnswers(url)
        writer = Usage(database)
        for _ in range(3):
            writer.add(used())
            with pytest.raises(StoreUnavailable):
                await writer.flush()
        database.loses = False
        await writer.flush()
        await writer.flush()
        (whole,) = await store.usage.report(MARCH, by=())
        assert whole["requests"] == 3
        await database.close()


def test_memory_is_bounded_while_the_store_is_away():
    writer = Usage(Database("postgresql://nobody@127.0.0.1:1/none"), most_held=10)
    for number in range(25):
        writer.add(used(model=f"m{number}"))
    writer.add(used(model="m3"))
    assert writer.dropped == 15


async def test_what_is_left_is_written_at_the_end_and_the_writer_is_forgotten(url):
    async with Store(url, PEPPER) as store:
        store.usage.add(used())
        await store.usage.flush()
        store.usage.add(used())
        store.audited_calls.denied("GET", "/a", None, ErrorCode.KEY_REVOKED)
    async with opened(url) as store:
        (whole,) = await store.usage.report(MARCH, by=())
        assert whole["requests"] == 2
        assert len(await store.audit.list()) == 1
        async with store._database.reading() as connection:
            counted = await connection.execute(select(func.count()).select_from(USAGE_BATCHES))
            assert counted.scalar_one() == 0


def test_csv_has_a_head_and_no_formulas():
    totals = {"day": "2026-03-01", "model": "=1+1", "requests": 1, "queue_s": 0.5}
    (row,) = csv.DictReader(io.StringIO(as_csv([totals])))
    assert (row["day"], row["model"]) == ("2026-03-01", "'=1+1")
    assert (row["tenant"], row["requests"], row["queue_s"]) == ("", "1", "0.5")


async def test_what_is_added_once_is_added_once_by_all_processes(url):
    async with opened(url) as one, opened(url) as other:
        for store in (one, other, one):
            await store.usage.add_once("batch:1", [used(), used(model="second")])
        await other.usage.add_once("batch:2", [used()])
        found = {row["model"]: row["requests"] for row in await one.usage.report(MARCH)}
        assert found == {"demo": 2, "second": 1}
        await one.usage._round()
        assert one.usage.others == 0  # it is no proxy
