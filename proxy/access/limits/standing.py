"""Where a caller stands, for the headers of its response. Written by `reservation`."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from triton_openai.proxy.access.limits.caller_meters import CallerMeters, Unit
from triton_openai.proxy.domain.price import NANOS
from triton_openai.proxy.ledger.port import MeterKind

REQUESTS, TOKENS = (Unit.REQUESTS,), (Unit.INPUT, Unit.OUTPUT, Unit.TOTAL)


@dataclass(frozen=True, slots=True)
class Standing:
    """One limit. reset_s: until all of it can be used again."""

    limit: int
    remaining: int
    reset_s: float


class Standings:
    """Those of one response; empty until the ledger has answered."""

    __slots__ = ("_meters", "_remaining", "_resets_us")

    def __init__(self) -> None:
        self._meters: CallerMeters | None = None
        self._remaining: Sequence[int] = ()
        self._resets_us: Sequence[int] = ()

    @property
    def are_known(self) -> bool:
        return self._meters is not None

    def set(self, meters: CallerMeters, remaining: Sequence[int], resets_us: Sequence[int]) -> None:
        self._meters, self._remaining, self._resets_us = meters, remaining, resets_us

    @property
    def requests(self) -> Standing | None:
        """The limit on requests with the least left; None without a limit."""
        return self._next(REQUESTS)

    @property
    def tokens(self) -> Standing | None:
        return self._next(TOKENS)

    @property
    def budget(self) -> float | None:
        """What is left of the month's, in the currency of the prices."""
        left = self._left(Unit.COST)
        return None if left is None else left / NANOS

    @property
    def monthly_tokens(self) -> int | None:
        return self._left(Unit.TOTAL)

    def _next(self, units: tuple[Unit, ...]) -> Standing | None:
        """A rate per second only where there is no window."""
        if self._meters is None:
            return None
        best, key = None, (0, 0)
        for at, (meter, unit) in enumerate(
            zip(self._meters.meters, self._meters.units, strict=True)
        ):
            if unit in units and meter.kind in RANKS:
                this = RANKS[meter.kind], self._remaining[at]
                if best is None or this < key:
                    best, key = at, this
        if best is None:
            return None
        limit = self._meters.meters[best].limit
        return Standing(limit, self._remaining[best], self._resets_us[best] / 1e6)

    def _left(self, unit: Unit) -> int | None:
        if self._meters is None:
            return None
        pairs = zip(self._meters.meters, self._meters.units, self._remaining, strict=True)
        left = [n for meter, each, n in pairs if each is unit and meter.kind is MeterKind.PERIOD]
        return min(left, default=None)


RANKS = {MeterKind.WINDOW: 0, MeterKind.RATE: 1}

current_standings: ContextVar[Standings | None] = ContextVar("current_standings", default=None)
"""Of the response that the running task makes; None where its caller has no limits."""
