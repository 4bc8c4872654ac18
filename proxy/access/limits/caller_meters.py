"""A caller's limits as the meters of the ledger, and where it stands in them.

Used by `request_limiter`; the headers of limits read the standings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote

from cachetools import LRUCache

from proxy.domain.identity import NO_LIMITS, Caller, Limits
from proxy.domain.model import NANOS
from proxy.domain.usage import UsageStore
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


TOKENS = (Unit.INPUT, Unit.OUTPUT, Unit.TOTAL)
NO_MONEY = frozenset(Unit) - {Unit.COST}
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
    "monthly_tokens": (MeterKind.PERIOD, Unit.TOTAL, 0),  # their span is the end of the month
    "monthly_budget": (MeterKind.PERIOD, Unit.COST, 0),
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
        self._known: LRUCache[tuple[str, str, str], CallerMeters] = LRUCache(MOST)

    async def meters(self, caller: Caller, model: str) -> CallerMeters:
        """model: its public name; empty for the limits that hold for every model."""
        name = (caller.tenant, caller.key_id, model)
        known = self._known.get(name)
        now_s = self._clock()
        if known is None or now_s >= known.ends_at_s or known.caller != caller:
            known = self._known[name] = await self._read(caller, model, now_s)
        return known

    async def _read(self, caller: Caller, model: str, now_s: float) -> CallerMeters:
        since = datetime.fromtimestamp(now_s, timezone.utc).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        ends_at_s = (since + timedelta(days=32)).replace(day=1).timestamp()
        tenant = quote(caller.tenant, safe="")  # it stands in braces in the keys of Redis
        limits_of_model = caller.of_models.get(model, NO_LIMITS)
        meters, units = list[Meter](), list[Unit]()
        for scope, key, limits, of_key, of_model in (
            ("tenant", "tenant", caller.tenant_limits, None, None),
            ("key", f"key:{quote(caller.key_id, safe='')}", caller.key_limits, caller.key_id, None),
            ("model", f"model:{quote(model, safe='')}", limits_of_model, None, model),
        ):
            spent: Amounts | None = None
            for name, kind, unit, limit, span_us in _set(limits):
                key_of_meter, opening = f"{tenant}/{key}/{name}", 0
                if kind is MeterKind.PERIOD:
                    spent = spent or await self._spent(caller.tenant, of_key, of_model, since)
                    span_us, opening = int(ends_at_s) * SECOND_US, spent[unit]
                    key_of_meter += f":{since:%Y-%m}"
                meter = Meter(
                    name=f"{scope}.{name}",
                    tenant=tenant,
                    key=key_of_meter,
                    kind=kind,
                    limit=limit,
                    span_us=span_us,
                    opening=opening,
                )
                meters.append(meter)
                units.append(unit)
        return CallerMeters(
            caller=caller, meters=tuple(meters), units=tuple(units), ends_at_s=ends_at_s
        )

    async def _spent(
        self, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Amounts:
        if self._usage is None:
            return NOTHING
        found = await self._usage.spent(tenant=tenant, key_id=key_id, model=model, since=since)
        return (0, 0, 0, 0, 0, found.tokens, math.ceil(found.cost * NANOS))


def _set(limits: Limits) -> Iterator[tuple[str, MeterKind, Unit, int, int]]:
    """The limits that are set: name, kind and unit of the meter, the most, and its span in us."""
    if limits.requests_per_second is not None:
        # the next whole microsecond, so that the rate is never exceeded
        interval_us = math.ceil(SECOND_US / limits.requests_per_second)
        yield "requests_per_second", MeterKind.RATE, Unit.REQUESTS, limits.burst, interval_us
    for name, (kind, unit, span_us) in METERS.items():
        if (limit := getattr(limits, name)) is not None:
            most = int(limit * NANOS) if unit is Unit.COST else limit
            yield name, kind, unit, most, span_us


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

    __slots__ = ("_look", "_meters", "_refused", "is_costly", "is_counted", "is_refused")

    def __init__(self) -> None:
        self.is_counted = self.is_costly = self.is_refused = False
        self._meters: CallerMeters | None = None
        self._look: Look | None = None
        self._refused: int | None = None  # the index of the meter that refused

    @property
    def are_known(self) -> bool:
        return self._meters is not None

    def set(self, meters: CallerMeters, look: Look, refused: int | None = None) -> None:
        self._meters, self._look, self._refused = meters, look, refused

    @property
    def first(self) -> Standing | None:
        """The limit that refused, if it is not of money; else on requests, else on tokens."""
        if self._refused is None:
            return self.requests or self.tokens
        return self._exceeded(NO_MONEY)

    @property
    def requests(self) -> Standing | None:
        """The limit on requests that refused, else the one with the least left: a rate per second
        where there is no other.
        """
        if (refused := self._exceeded((Unit.REQUESTS,))) is not None:
            return refused
        windows = self._least(MeterKind.WINDOW, Unit.REQUESTS)
        return windows or self._least(MeterKind.RATE, Unit.REQUESTS)

    @property
    def tokens(self) -> Standing | None:
        return self._exceeded(TOKENS) or self._least(MeterKind.WINDOW, *TOKENS)

    @property
    def budget(self) -> float | None:
        """The rest of the monthly budget, in the currency of the prices."""
        found = self._least(MeterKind.PERIOD, Unit.COST)
        return None if found is None else found.remaining / NANOS

    @property
    def monthly_tokens(self) -> int | None:
        found = self._least(MeterKind.PERIOD, Unit.TOTAL)
        return None if found is None else found.remaining

    def _exceeded(self, units: Collection[Unit]) -> Standing | None:
        """The limit that refused, if it is of one of these units."""
        at, meters, look = self._refused, self._meters, self._look
        if at is None or meters is None or look is None or meters.units[at] not in units:
            return None
        left, reset_us = look(at)
        return Standing(meters.meters[at].limit, left, reset_us / 1e6)

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
