"""The ledger in this process's memory. Called by `access`; Redis' own count uses it, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from typing_extensions import Self

from proxy.ledger.meter_states import STATES, Charge, MeterState
from proxy.ledger.port import (
    Grant,
    LedgerUnavailable,
    Meter,
    MeterKind,
    Refusal,
    Standing,
)

MOST_METERS = 1_000_000
FIRST_SWEEP = 4_096
FULL_US = 1_000_000  # until a full ledger looks for idle meters again
_EPOCH_NS = time.time_ns() - time.monotonic_ns()

Clock = Callable[[], int]


def steady_us() -> int:
    """Microseconds since 1970 that never go back: the time of the start, and what passed since."""
    return (_EPOCH_NS + time.monotonic_ns()) // 1000


class InProcessLedger:
    """Implements port.Ledger. A meter that is idle is forgotten.

    most: meters in memory; a request that needs another one is refused, since forgetting one in
    use would let more through than its limit.
    """

    outage: str | None = None
    proxies = 1

    def __init__(self, clock: Clock = steady_us, *, most: int = MOST_METERS) -> None:
        self._clock = clock
        self._most = most
        self._states: dict[str, MeterState] = {}
        self._sweep_at = min(FIRST_SWEEP, most)
        self._full_until = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def __len__(self) -> int:
        return len(self._states)

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        return self.take(meters, amounts)

    def take(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """As `reserve`, without waiting."""
        now, marks = self._clock(), list[int]()
        states = self._found(meters, now)
        for meter, amount, state in zip(meters, amounts, states, strict=True):
            mark = state.take(now, amount, meter)
            if mark < 0:
                return self._refusal(meters, amounts, states, marks, now)
            marks.append(mark)
        return Grant(meters, amounts, partial(_look, self._clock, meters, states), marks)

    def record(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant:
        """Counts amounts that another ledger has granted, even beyond the limits."""
        now = self._clock()
        states = self._found(meters, now)
        marks = [
            state.add(now, amount, meter)
            for meter, amount, state in zip(meters, amounts, states, strict=True)
        ]
        return Grant(meters, amounts, partial(_look, self._clock, meters, states), marks)

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        for meter, mark, reserved, amount in zip(
            grant.meters, grant.marks, grant.amounts, amounts, strict=True
        ):
            if amount != reserved and (state := self._states.get(meter.key)) is not None:
                state.replace(mark, reserved, amount)
        grant.amounts = amounts

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if grant.is_settled:
            return
        grant.is_settled = True
        states = self._states
        for meter, mark, reserved, amount in zip(
            grant.meters, grant.marks, grant.amounts, amounts, strict=True
        ):
            is_same = amount == reserved and meter.kind < MeterKind.GAUGE
            if not is_same and (state := states.get(meter.key)) is not None:
                state.settle(mark, reserved, amount)

    def _refusal(
        self,
        meters: Sequence[Meter],
        amounts: Sequence[int],
        states: Sequence[MeterState],
        marks: Sequence[int],
        now: int,
    ) -> Refusal:
        """Of the meter with the longest wait. marks: of the first meters, which are given back."""
        for state, mark, amount in zip(states, marks, amounts, strict=False):
            state.replace(mark, amount, 0)
        longest, at = 0, 0
        for index, (meter, amount, state) in enumerate(zip(meters, amounts, states, strict=True)):
            mark = state.take(now, amount, meter)
            if mark >= 0:
                state.replace(mark, amount, 0)
            elif -mark > longest:
                longest, at = -mark, index
        return Refusal(meters, at, longest, partial(_look, self._clock, meters, states))

    def charges(self) -> list[Charge]:
        """What was counted here and is kept, of all meters."""
        return [charge for state in self._states.values() for charge in state.charges()]

    def _found(self, meters: Sequence[Meter], now: int) -> list[MeterState]:
        states = self._states
        if len(states) + len(meters) > self._sweep_at:
            new = sum(meter.key not in states for meter in meters)
            if new:
                self._sweep(now, new)
        return [states.get(meter.key) or self._new(meter) for meter in meters]

    def _new(self, meter: Meter) -> MeterState:
        state: MeterState = STATES[meter.kind](meter)
        self._states[meter.key] = state
        return state

    def _sweep(self, now: int, more: int) -> None:
        """Each time that the number of meters has doubled, so that it costs little a meter."""
        if now < self._full_until:
            raise LedgerUnavailable(f"{len(self._states)} meters are in use: there is no room")
        idle = [key for key, state in self._states.items() if state.is_idle(now)]
        for key in idle:
            del self._states[key]
        if len(self._states) + more > self._most:
            self._full_until = now + FULL_US
            raise LedgerUnavailable(f"{len(self._states)} meters are in use: there is no room")
        self._sweep_at = min(max(2 * len(self._states), FIRST_SWEEP), self._most)


def _look(clock: Clock, meters: Sequence[Meter], states: Sequence[MeterState], at: int) -> Standing:
    return states[at].standing(clock(), meters[at])
