"""A caller's limits as the meters of the ledger, and where it stands in them.

Used by `request_limiter`; the headers of limits read the standings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote

from proxy.domain.identity import Caller, Limits
from proxy.domain.model import NANOS
from proxy.domain.usage import Spent, UsageStore
from proxy.state.meters import Look, Meter, MeterKind

SECOND_US = 1_000_000
MOST = 10_000
MINUTE_US, DAY_US = 60 * SECOND_US, 86_400 * SECOND_US


class Unit(IntEnum):
    """What a meter counts; the index of its amount in `Amounts`."""

    REQUESTS = 0
    RUNNING = 1
    STREAMS = 2
    INPUT = 3
    OUTPUT = 4
    TOTAL = 5
    COST = 6


Amounts = tuple[int, int, int, int, int, int, int]
"""By Unit. Cost: in billionths of the currency."""

NOTHING: Amounts = (0, 0, 0, 0, 0, 0, 0)
METERS = {
    "requests_per_minute": (MeterKind.WINDOW, Unit.REQUESTS, MINUTE_US),
    "requests_per_day": (MeterKind.WINDOW, Unit.REQUESTS, DAY_US),
    "input_tokens_per_minute": (MeterKind.WINDOW, Unit.INPUT, MINUTE_US),
    "output_tokens_per_minute": (MeterKind.WINDOW, Unit.OUTPUT, MINUTE_US),
    "tokens_per_minute": (MeterKind.WINDOW, Unit.TOTAL, MINUTE_US),
    "input_tokens_per_day": (MeterKind.WINDOW, Unit.INPUT, DAY_US),
    "output_tokens_per_day": (MeterKind.WINDOW, Unit.OUTPUT, DAY_US),
    "tokens_per_day": (MeterKind.WINDOW, Unit.TOTAL, DAY_US),
    "concurrent_requests": (MeterKind.GAUGE, Unit.RUNNING, 0),
    "concurrent_streams": (MeterKind.GAUGE, Unit.STREAMS, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerMeters:
    """units: of each meter. ends_at_s: when the month is over, for which they hold."""

    caller: Caller
    meters: tuple[Meter, ...]
    units: tuple[Unit, ...]
    ends_at_s: float

    def amounts(self, of: Sequence[int]) -> list[int]:
        return [of[unit] for unit in self.units]


class MeteredCallers:
    """usage: knows what was spent before; None where nobody keeps it. clock: seconds since 1970."""

    def __init__(self, usage: UsageStore | None, clock: Callable[[], float] = time.time) -> None:
        self._usage = usage
        self._clock = clock
        self._known: dict[tuple[str, str, str], CallerMeters] = {}

    async def meters(self, caller: Caller, model: str) -> CallerMeters:
        """model: its public name; empty for the limits that hold for every model."""
        name = (caller.tenant, caller.key_id, model)
        known = self._known.get(name)
        now_s = self._clock()
        if known is None or now_s >= known.ends_at_s or known.caller != caller:
            known = await self._read(caller, model, now_s)
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = known
        return known

    async def _read(self, caller: Caller, model: str, now_s: float) -> CallerMeters:
        since = datetime.fromtimestamp(now_s, timezone.utc).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        until = (since + timedelta(days=32)).replace(day=1)
        found: list[tuple[Meter, Unit]] = []
        for scope in _scopes(caller, model):
            limits, spent = scope.limits, Spent()
            is_monthly = limits.monthly_tokens is not None or limits.monthly_budget is not None
            if is_monthly and self._usage is not None:
                spent = await self._usage.spent(
                    tenant=caller.tenant, key_id=scope.key_id, model=scope.model, since=since
                )
            found += scope.meters(spent, since, until)
        return CallerMeters(
            caller=caller,
            meters=tuple(meter for meter, _ in found),
            units=tuple(unit for _, unit in found),
            ends_at_s=until.timestamp(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """One of the three that have limits. kind: for callers. key: unique in its tenant."""

    kind: str
    key: str
    tenant: str
    limits: Limits
    key_id: str | None = None
    model: str | None = None

    def meters(
        self, spent: Spent, since: datetime, until: datetime
    ) -> Iterator[tuple[Meter, Unit]]:
        limits = self.limits
        if limits.requests_per_second is not None:
            # the next whole microsecond, so that the rate is never exceeded
            interval_us = math.ceil(SECOND_US / limits.requests_per_second)
            rate = self._meter("requests_per_second", MeterKind.RATE, limits.burst, interval_us)
            yield rate, Unit.REQUESTS
        for name, (kind, unit, span_us) in METERS.items():
            if (limit := getattr(limits, name)) is not None:
                yield self._meter(name, kind, limit, span_us), unit
        for name, unit, limit, opening in (
            ("monthly_tokens", Unit.TOTAL, limits.monthly_tokens, spent.tokens),
            ("monthly_budget", Unit.COST, _nanos(limits), math.ceil(spent.cost * NANOS)),
        ):
            if limit is not None:
                ends_at_us = int(until.timestamp()) * SECOND_US
                month = f":{since:%Y-%m}"
                yield self._meter(name, MeterKind.PERIOD, limit, ends_at_us, opening, month), unit

    def _meter(
        self,
        name: str,
        kind: MeterKind,
        limit: int,
        span_us: int,
        opening: int = 0,
        month: str = "",
    ) -> Meter:
        return Meter(
            name=f"{self.kind}.{name}",
            tenant=self.tenant,
            key=f"{self.tenant}/{self.key}/{name}{month}",
            kind=kind,
            limit=limit,
            span_us=span_us,
            opening=opening,
        )


def _scopes(caller: Caller, model: str) -> Iterator[_Scope]:
    tenant = quote(caller.tenant, safe="")  # it stands in braces in the keys of Redis
    yield _Scope(kind="tenant", key="tenant", tenant=tenant, limits=caller.tenant_limits)
    key = f"key:{quote(caller.key_id, safe='')}"
    limits = caller.key_limits
    yield _Scope(kind="key", key=key, tenant=tenant, limits=limits, key_id=caller.key_id)
    if (of_model := caller.of_models.get(model)) is not None:
        key = f"model:{quote(model, safe='')}"
        yield _Scope(kind="model", key=key, tenant=tenant, limits=of_model, model=model)


def _nanos(limits: Limits) -> int | None:
    return None if limits.monthly_budget is None else int(limits.monthly_budget * NANOS)


class Standing(NamedTuple):
    """One limit. reset_s: until all of it can be used again."""

    limit: int
    remaining: int
    reset_s: float


class Standings:
    """Those of one response, in its record; empty until the ledger has answered.

    is_counted: the request is among those that the limits count. is_costly: it took so much work
    that it counts even if it is refused. is_refused: for another reason than the limits.
    """

    __slots__ = ("_look", "_meters", "is_costly", "is_counted", "is_refused")

    def __init__(self) -> None:
        self.is_counted = self.is_costly = self.is_refused = False
        self._meters: CallerMeters | None = None
        self._look: Look | None = None

    @property
    def are_known(self) -> bool:
        return self._meters is not None

    def set(self, meters: CallerMeters, look: Look) -> None:
        self._meters, self._look = meters, look

    @property
    def requests(self) -> Standing | None:
        """The limit on requests with the least left: a rate per second where there is no other."""
        windows = self._least(MeterKind.WINDOW, Unit.REQUESTS)
        return windows or self._least(MeterKind.RATE, Unit.REQUESTS)

    @property
    def tokens(self) -> Standing | None:
        return self._least(MeterKind.WINDOW, Unit.INPUT, Unit.OUTPUT, Unit.TOTAL)

    @property
    def budget(self) -> float | None:
        """What is left of the month's, in the currency of the prices."""
        found = self._least(MeterKind.PERIOD, Unit.COST)
        return None if found is None else found.remaining / NANOS

    @property
    def monthly_tokens(self) -> int | None:
        found = self._least(MeterKind.PERIOD, Unit.TOTAL)
        return None if found is None else found.remaining

    def _least(self, kind: MeterKind, *units: Unit) -> Standing | None:
        """The limit of this kind with the least left; None without one."""
        if self._meters is None or self._look is None:
            return None
        found: Standing | None = None
        pairs = zip(self._meters.meters, self._meters.units, strict=True)
        for at, (meter, unit) in enumerate(pairs):
            if meter.kind is kind and unit in units:
                left, reset_us = self._look(at)
                if found is None or left < found.remaining:
                    found = Standing(meter.limit, left, reset_us / 1e6)
        return found
