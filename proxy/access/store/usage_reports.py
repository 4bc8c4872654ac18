"""Reads usage by period, summed by day, tenant, key and model as far as asked."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from enum import Enum
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Double, Select, func, select, type_coerce

from proxy.access.store.database import Database
from proxy.access.store.tables import USAGE

COUNTS = tuple(column.name for column in USAGE.columns if not column.primary_key)


class Grouping(str, Enum):
    """What the rows of a report are apart by."""

    DAY = "day"
    TENANT = "tenant"
    KEY = "key"
    MODEL = "model"


EVERY_GROUPING = tuple(Grouping)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePeriod:
    """The days, both included, and whose usage. None: all."""

    first: date
    last: date
    tenant: str | None = None
    key: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Sums over a period. day, tenant, key and model are None where the report sums over them.

    prompt_tokens includes cached_tokens, output_tokens includes reasoning_tokens. queue_s: seconds
    that requests waited in engines. cost: in the currency of the models' prices.
    """

    day: date | None = None
    tenant: str | None = None
    key: str | None = None
    model: str | None = None
    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    queue_s: float
    cost: float


class UsageReports:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(
        self,
        period: UsagePeriod,
        by: Iterable[Grouping] = EVERY_GROUPING,
        *,
        limit: int | None = None,
    ) -> Sequence[UsageTotals]:
        """At most `limit` rows, one for each day, tenant, key or model, in the order of `by`.

        A request is in it about a second after it has ended. Raises StoreUnavailable.
        """
        groups = [USAGE.c[group.value] for group in dict.fromkeys(by)]
        async with self._database.reading() as connection:
            found = await connection.execute(_summed(period, groups).limit(limit))
            return [_totals(dict(row)) for row in found.mappings()]


def as_csv(rows: Iterable[UsageTotals]) -> str:
    """With a head, and lines that end as RFC 4180 says. Cells no spreadsheet takes for formulas."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([field.name for field in fields(UsageTotals)])
    for row in rows:
        writer.writerow([_cell(value) for value in asdict(row).values()])
    return text.getvalue()


def _summed(period: UsagePeriod, groups: Sequence[ColumnElement[Any]]) -> Select[Any]:
    sums = [type_coerce(func.sum(USAGE.c[name]), _type(name)).label(name) for name in COUNTS]
    chosen = select(*groups, *sums).where(USAGE.c.day.between(period.first, period.last))
    for name in ("tenant", "key", "model"):
        if (value := getattr(period, name)) is not None:
            chosen = chosen.where(USAGE.c[name] == value)
    # without groups, SQL gives a row of nulls where nothing was used
    return chosen.group_by(*groups).order_by(*groups).having(func.count() > 0)


def _type(name: str) -> BigInteger | Double[float]:
    return Double() if name in ("queue_s", "cost") else BigInteger()


def _totals(row: dict[str, Any]) -> UsageTotals:
    for name in COUNTS:
        if name not in ("queue_s", "cost"):
            row[name] = int(row[name])  # PostgreSQL's sum of bigint is numeric
    return UsageTotals(**row)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value
