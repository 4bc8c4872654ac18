"""A caller's limits as the meters of the ledger. Used by `request_limiter`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from urllib.parse import quote

from proxy.domain.identity import NO_LIMITS, Caller, Limits
from proxy.domain.model import NANOS
from proxy.domain.usage import Spent, UsageStore
from proxy.state.meters import Meter, MeterKind

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
WINDOWS = {
    "requests_per_minute": (Unit.REQUESTS, MINUTE_US),
    "requests_per_day": (Unit.REQUESTS, DAY_US),
    "input_tokens_per_minute": (Unit.INPUT, MINUTE_US),
    "output_tokens_per_minute": (Unit.OUTPUT, MINUTE_US),
    "tokens_per_minute": (Unit.TOTAL, MINUTE_US),
    "input_tokens_per_day": (Unit.INPUT, DAY_US),
    "output_tokens_per_day": (Unit.OUTPUT, DAY_US),
    "tokens_per_day": (Unit.TOTAL, DAY_US),
}
GAUGES = {"concurrent_requests": Unit.RUNNING, "concurrent_streams": Unit.STREAMS}


class CallerMeters:
    """units: of each meter. ends_at_s: when the month is over, for which they hold.

    request_windows, token_windows, budgets, monthly_tokens: the indexes of such meters, for
    headers. A rate per second is among the first where there is no window.
    """

    def __init__(
        self, caller: Caller, meters: Sequence[tuple[Meter, Unit]], ends_at_s: float
    ) -> None:
        self.caller = caller
        self.meters = tuple(meter for meter, _ in meters)
        self.units = tuple(unit for _, unit in meters)
        self.ends_at_s = ends_at_s
        rates = self._indexes(MeterKind.RATE, Unit.REQUESTS)
        self.request_windows = self._indexes(MeterKind.WINDOW, Unit.REQUESTS) or rates
        self.token_windows = self._indexes(MeterKind.WINDOW, Unit.INPUT, Unit.OUTPUT, Unit.TOTAL)
        self.budgets = self._indexes(MeterKind.PERIOD, Unit.COST)
        self.monthly_tokens = self._indexes(MeterKind.PERIOD, Unit.TOTAL)

    def amounts(self, of: Sequence[int]) -> list[int]:
        return [of[unit] for unit in self.units]

    def _indexes(self, kind: MeterKind, *units: Unit) -> tuple[int, ...]:
        pairs = enumerate(zip(self.meters, self.units, strict=True))
        return tuple(at for at, (meter, unit) in pairs if meter.kind is kind and unit in units)

    def is_of(self, caller: Caller) -> bool:
        """Whether these are the limits of the caller, who may be a new object."""
        mine = self.caller
        return mine is caller or (
            mine.tenant_limits == caller.tenant_limits
            and mine.key_limits == caller.key_limits
            and mine.of_models == caller.of_models
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """One of the three that have limits. kind: for callers. key: unique."""

    kind: str
    key: str
    limits: Limits
    key_id: str | None = None
    model: str | None = None


async def meters_of(
    caller: Caller, model: str, usage: UsageStore | None, *, now_s: float
) -> CallerMeters:
    """model: its public name. now_s: since 1970."""
    since, until = _month(now_s)
    meters = list[tuple[Meter, Unit]]()
    for scope in _scopes(caller, model):
        meters += _meters(scope, caller.tenant)
        if scope.limits.monthly_tokens is None and scope.limits.monthly_budget is None:
            continue
        spent = Spent()
        if usage is not None:
            spent = await usage.spent(
                tenant=caller.tenant, key_id=scope.key_id, model=scope.model, since=since
            )
        meters += _monthly(scope, caller.tenant, spent, since, until)
    return CallerMeters(caller, meters, until.timestamp())


def has_limits(caller: Caller) -> bool:
    """Cheap for most callers: their limits are the one object without any."""
    return any(
        limits is not NO_LIMITS and limits != NO_LIMITS
        for limits in (caller.tenant_limits, caller.key_limits, *caller.of_models.values())
    )


def _scopes(caller: Caller, model: str) -> Iterator[_Scope]:
    yield _Scope(kind="tenant", key="tenant", limits=caller.tenant_limits)
    key = f"key:{quote(caller.key_id, safe='')}"
    yield _Scope(kind="key", key=key, limits=caller.key_limits, key_id=caller.key_id)
    if (of_model := caller.of_models.get(model)) is not None:
        yield _Scope(
            kind="model", key=f"model:{quote(model, safe='')}", limits=of_model, model=model
        )


def _meters(scope: _Scope, tenant: str) -> Iterator[tuple[Meter, Unit]]:
    limits = scope.limits
    if limits.requests_per_second is not None:
        # the next whole microsecond, so that the rate is never exceeded
        interval_us = math.ceil(SECOND_US / limits.requests_per_second)
        name = "requests_per_second"
        yield _meter(scope, tenant, name, MeterKind.RATE, limits.burst, interval_us), Unit.REQUESTS
    for name, (unit, span_us) in WINDOWS.items():
        if (limit := getattr(limits, name)) is not None:
            yield _meter(scope, tenant, name, MeterKind.WINDOW, limit, span_us), unit
    for name, unit in GAUGES.items():
        if (limit := getattr(limits, name)) is not None:
            yield _meter(scope, tenant, name, MeterKind.GAUGE, limit), unit


def _monthly(
    scope: _Scope, tenant: str, spent: Spent, since: datetime, until: datetime
) -> Iterator[tuple[Meter, Unit]]:
    limits, ends_at_us = scope.limits, int(until.timestamp()) * SECOND_US
    month = f"{since:%Y-%m}"
    if limits.monthly_tokens is not None:
        given = (limits.monthly_tokens, ends_at_us, spent.tokens, month)
        yield _meter(scope, tenant, "monthly_tokens", MeterKind.PERIOD, *given), Unit.TOTAL
    if limits.monthly_budget is not None:
        limit, opening = int(limits.monthly_budget * NANOS), math.ceil(spent.cost * NANOS)
        given = (limit, ends_at_us, opening, month)
        yield _meter(scope, tenant, "monthly_budget", MeterKind.PERIOD, *given), Unit.COST


def _meter(
    scope: _Scope,
    tenant: str,
    name: str,
    kind: MeterKind,
    limit: int,
    span_us: int = 0,
    opening: int = 0,
    month: str = "",
) -> Meter:
    tenant = quote(tenant, safe="")  # it stands in braces in the keys of Redis
    return Meter(
        name=f"{scope.kind}.{name}",
        tenant=tenant,
        key=f"{tenant}/{scope.key}/{name}{month and ':'}{month}",
        kind=kind,
        limit=limit,
        span_us=span_us,
        opening=opening,
    )


def _month(now_s: float) -> tuple[datetime, datetime]:
    """Its first moment, and the next month's; UTC."""
    now = datetime.fromtimestamp(now_s, timezone.utc)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(first.year * 12 + first.month, 12)
    return first, first.replace(year=year, month=month + 1)


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
        if known is None or now_s >= known.ends_at_s or not known.is_of(caller):
            known = await meters_of(caller, model, self._usage, now_s=now_s)
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = known
        return known
