"""What requests used, by day, tenant, key and model. Implements domain.usage.UsageStore.

Every process writes batches of its own, about every second. A batch has a number, and the
transaction that adds it also stores the number: when the answer to a commit is lost, the batch is
sent again, and the database says whether it was added already.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from secrets import token_hex
from typing import Any

import structlog
from sqlalchemy import BigInteger, Double, Integer, delete, func, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.database import POSTGRESQL, Database, cleaned
from proxy.access.store.tables import USAGE, USAGE_BATCHES
from proxy.background import Periodic
from proxy.domain.errors import StoreUnavailable
from proxy.domain.usage import Spent, UsageRow

logger = structlog.get_logger(__name__)

INTERVAL_S = 1.0
CLOSE_TIMEOUT_S = 10.0
MOST_HELD = 100_000  # rows that wait for a store that does not answer, tens of MB
ROWS_PER_STATEMENT = 500  # times 12 columns: within the parameters of both databases
RECENT = timedelta(minutes=1)
FORGOTTEN_AFTER = timedelta(days=7)  # batch numbers of processes that were killed
ONCE = "once:"  # how the writers of `add_once` begin
GROUPS = tuple(column.name for column in USAGE.primary_key)
COUNTS = tuple(column.name for column in USAGE.columns if not column.primary_key)
LOST = "the reports lack these requests; look at the database that STORE_URL names"
# In the order of the primary key, in which rows are locked: two writers cannot wait for each other.
Place = tuple[date, str, str, str]
Totals = Mapping[str, Any]
"""A row of a report: the columns that it groups by (the day in ISO's form), and sums of the others.

prompt_tokens includes cached_tokens, output_tokens includes reasoning_tokens. queue_s: seconds that
requests waited in engines. cost: in the currency of the models' prices.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePeriod:
    """The days, both included, and whose usage. None: all."""

    first: date
    last: date
    tenant: str | None = None
    key: str | None = None
    model: str | None = None


@dataclass(slots=True)
class Batch:
    number: int
    sums: dict[Place, list[float]] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return int(sum(sums[0] for sums in self.sums.values()))

    def add(self, row: UsageRow, most: int) -> bool:
        """Returns False if the row needs a new sum, and there are `most` already."""
        day = row.at.astimezone(timezone.utc).date()
        place = (day, cleaned(row.tenant), cleaned(row.key_id), cleaned(row.model))
        sums = self.sums.get(place)
        if sums is None:
            if len(self.sums) >= most:
                return False
            sums = self.sums[place] = [0] * len(COUNTS)
        for position, name in enumerate(COUNTS):
            sums[position] += getattr(row, name)
        return True


class Usage:
    """`async with` writes until the body ends, and then what is left.

    Only rows of tenants, keys and models that are new in this batch take memory. others: how many
    other proxies have written usage to this store in the last minute.
    """

    def __init__(
        self, database: Database, *, interval_s: float = INTERVAL_S, most_held: int = MOST_HELD
    ) -> None:
        self._database = database
        self._rounds = Periodic(self._round, interval_s)
        self._most_held = most_held
        self._name = token_hex(8)
        self._open = Batch(1)
        self._closed: Batch | None = None  # taken out for the database, which may not have it yet
        self._writing = asyncio.Lock()
        self._is_failing = False
        self.others = 0
        self.dropped = 0  # requests that were not counted, because the store was away for too long

    def add(self, row: UsageRow) -> None:
        if not self._open.add(row, self._most_held):
            self.dropped += row.requests

    async def add_once(self, name: str, rows: Sequence[UsageRow]) -> None:
        batch = Batch(1)
        for row in rows:
            batch.add(row, len(rows))
        await self._write(batch, f"{ONCE}{name}")

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        """Without the rows of the last second. Raises StoreUnavailable."""
        today = datetime.now(timezone.utc).date()
        period = UsagePeriod(first=since.date(), last=today, tenant=tenant, key=key_id, model=model)
        found = await self.report(period, ())
        return Spent(
            tokens=sum(row["prompt_tokens"] + row["output_tokens"] for row in found),
            cost=sum(row["cost"] for row in found),
        )

    async def report(
        self, period: UsagePeriod, by: Iterable[str] = GROUPS, *, limit: int | None = None
    ) -> Sequence[Totals]:
        """At most `limit` rows, one for each day, tenant, key or model, in the order of `by`.

        A request is in it about a second after it has ended. Raises StoreUnavailable.
        """
        groups = [USAGE.c[name] for name in dict.fromkeys(by)]
        sums = [type_coerce(func.sum(USAGE.c[name]), _type(name)).label(name) for name in COUNTS]
        chosen = select(*groups, *sums).where(USAGE.c.day.between(period.first, period.last))
        for name in ("tenant", "key", "model"):
            if (value := getattr(period, name)) is not None:
                chosen = chosen.where(USAGE.c[name] == value)
        # without groups, SQL gives a row of nulls where nothing was used
        chosen = chosen.group_by(*groups).order_by(*groups).having(func.count() > 0)
        async with self._database.reading() as connection:
            found = (await connection.execute(chosen.limit(limit))).mappings()
            return [
                {str(name): _plain(name, value) for name, value in row.items()} for row in found
            ]

    async def __aenter__(self) -> Usage:
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()
        try:
            await asyncio.wait_for(self._finish(), CLOSE_TIMEOUT_S)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            lost = self._open.requests + (0 if self._closed is None else self._closed.requests)
            logger.error("usage lost", requests=lost, detail=str(error), advice=LOST)

    async def flush(self) -> None:
        """Writes all that was added so far. Raises StoreUnavailable; the rows are then kept."""
        async with self._writing:
            for _ in range(2):  # the batch that failed before, then the open one
                if self._closed is None:
                    self._closed, self._open = self._open, Batch(self._open.number + 1)
                if self._closed.sums:
                    await self._write(self._closed, self._name)
                self._closed = None

    async def _round(self) -> None:
        try:
            await self.flush()
            await self._count_others()
            self._is_failing = False
        except StoreUnavailable as error:
            if not self._is_failing:
                logger.error(
                    "usage cannot be written",
                    detail=error.detail,
                    advice="look at the database that STORE_URL names; usage is kept in memory "
                    "until it answers",
                )
            self._is_failing = True
        except Exception:  # the database refuses the batch: another try would not help
            lost, self._closed = self._closed, None
            requests = 0 if lost is None else lost.requests
            logger.exception("usage lost", requests=requests, advice=LOST)

    async def _write(self, batch: Batch, writer: str) -> None:
        async with self._database.writing() as connection:
            statement = _insert(connection)(USAGE_BATCHES).values(
                writer=writer, number=batch.number, at=datetime.now(timezone.utc)
            )
            excluded = statement.excluded
            stored = await connection.execute(
                statement.on_conflict_do_update(
                    index_elements=[USAGE_BATCHES.c.writer],
                    set_={"number": excluded.number, "at": excluded.at},
                    where=USAGE_BATCHES.c.number < excluded.number,
                ).returning(USAGE_BATCHES.c.number)
            )
            if stored.one_or_none() is None:
                return  # it was added already
            rows = [
                dict(zip((*GROUPS, *COUNTS), (*place, *batch.sums[place]), strict=True))
                for place in sorted(batch.sums)
            ]
            for start in range(0, len(rows), ROWS_PER_STATEMENT):
                part = rows[start : start + ROWS_PER_STATEMENT]
                statement = _insert(connection)(USAGE).values(part)
                added = {name: USAGE.c[name] + statement.excluded[name] for name in COUNTS}
                await connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=list(USAGE.primary_key), set_=added
                    )
                )

    async def _count_others(self) -> None:
        batches = USAGE_BATCHES.c
        is_recent = batches.at > datetime.now(timezone.utc) - RECENT
        is_other = batches.writer != self._name, batches.writer.not_like(f"{ONCE}%")
        chosen = select(func.count()).select_from(USAGE_BATCHES).where(is_recent, *is_other)
        async with self._database.reading() as connection:
            self.others = (await connection.execute(chosen)).scalar_one()

    async def _finish(self) -> None:
        """Writes what is left, and removes this writer's batch number, and those that killed
        processes left behind.
        """
        await self.flush()
        old = datetime.now(timezone.utc) - FORGOTTEN_AFTER
        mine = USAGE_BATCHES.c.writer == self._name
        async with self._database.writing() as connection:
            await connection.execute(delete(USAGE_BATCHES).where(mine | (USAGE_BATCHES.c.at < old)))


def as_csv(rows: Iterable[Totals]) -> str:
    """With a head, and lines that end as RFC 4180 says. Cells no spreadsheet takes for formulas."""
    text = io.StringIO()
    writer = csv.DictWriter(text, (*GROUPS, *COUNTS), restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _type(name: str) -> BigInteger | Double[float]:
    return BigInteger() if isinstance(USAGE.c[name].type, Integer) else Double()


def _plain(name: str, value: Any) -> Any:
    """A column of a report as JSON has it."""
    if name in COUNTS and isinstance(USAGE.c[name].type, Integer):
        return int(value)  # PostgreSQL's sum of bigint is numeric
    return value.isoformat() if isinstance(value, date) else value


def _cell(value: Any) -> Any:
    is_formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if is_formula else value


def _insert(connection: AsyncConnection) -> Any:
    """Both dialects' `insert` have `on_conflict_do_update`, under no common type."""
    is_postgresql = connection.dialect.name == POSTGRESQL
    return postgresql.insert if is_postgresql else sqlite.insert
