"""Ejects an endpoint that cannot be reached or is far too slow, as Envoy's outlier detection does.

The pool asks `can_admit` before it chooses an endpoint, calls `admit` for each stream that it sends
there, and reports on the `Attempt` how the stream began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Clock = Callable[[], float]


class BreakerState(str, Enum):
    """HALF_OPEN: the ejection time is over, and one request may try the endpoint."""

    CLOSED = "closed"
    EJECTED = "ejected"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """The nth ejection in a row takes n times `base_s`, at most `most_s`.

    consecutive_faults: how many of them eject the endpoint. forget_s: for each such time that the
    endpoint works, one earlier ejection no longer counts (Envoy: its interval of 10 s).
    """

    consecutive_faults: int = 5
    base_s: float = 30.0
    most_s: float = 300.0
    forget_s: float = 10.0

    def __post_init__(self) -> None:
        if self.consecutive_faults < 1:
            raise ValueError(f"consecutive_faults is {self.consecutive_faults}, must be 1 or more")
        if not 0 < self.base_s <= self.most_s:
            raise ValueError(f"base_s is {self.base_s}, must be over 0 and at most {self.most_s}")
        if self.forget_s <= 0:
            raise ValueError(f"forget_s is {self.forget_s}, must be over 0")

    @property
    def most_ejections(self) -> int:
        """More than these do not make an ejection longer."""
        return int(-(-self.most_s // self.base_s))


class Attempt:
    """One stream that was sent to the endpoint. Report once; later reports change nothing."""

    __slots__ = ("_breaker", "_round")

    def __init__(self, breaker: CircuitBreaker, began_in: int) -> None:
        self._breaker: CircuitBreaker | None = breaker
        self._round = began_in

    def succeeded(self) -> None:
        """The endpoint answered: a token, or an error that is not its fault, such as a refused
        parameter or a full queue (429).
        """
        if (breaker := self._take()) is not None:
            breaker.record_success(self._round)

    def failed(self) -> None:
        """The connection failed, or the endpoint answered UNAVAILABLE."""
        if (breaker := self._take()) is not None:
            breaker.record_fault(self._round)

    def abandoned(self) -> None:
        """It ended before the endpoint answered: the caller disconnected, or its time was over."""
        if (breaker := self._take()) is not None:
            breaker.record_abandoned(self._round)

    def _take(self) -> CircuitBreaker | None:
        breaker, self._breaker = self._breaker, None
        return breaker


class CircuitBreaker:
    """The breaker of one endpoint.

    clock: seconds, monotonic. may_eject: whether the pool can do without this endpoint, see
    `pool.may_eject`; it is asked before every ejection but a repeated one. A fault that may
    not eject still counts, so the next fault asks again. Reports on attempts that began before the
    last change of state are ignored.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        *,
        clock: Clock,
        may_eject: Callable[[], bool] = lambda: True,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._may_eject = may_eject
        self._faults = 0
        self._level = 0  # ejections in a row: how many times base_s the last one took
        self._round = 0  # reports on attempts of an earlier round are ignored
        self._ejected_until: float | None = None
        self._is_probing = False
        self._closed_at = clock()
        self.ejections = 0
        self.was_slow = False  # why it was ejected last

    @property
    def state(self) -> BreakerState:
        if self._ejected_until is None:
            return BreakerState.CLOSED
        is_over = self._clock() >= self._ejected_until
        return BreakerState.HALF_OPEN if is_over else BreakerState.EJECTED

    @property
    def is_closed(self) -> bool:
        """False while ejected or half-open. Cheap: does not read the clock."""
        return self._ejected_until is None

    @property
    def can_admit(self) -> bool:
        """Whether a stream may be sent now: closed, or half-open without a request under way."""
        return self._ejected_until is None or (
            not self._is_probing and self._clock() >= self._ejected_until
        )

    @property
    def ejected_for_s(self) -> float:
        """What remains of the ejection; 0 when closed or half-open."""
        return 0.0 if self.is_closed else max(0.0, (self._ejected_until or 0.0) - self._clock())

    def admit(self, *, is_last_resort: bool = False) -> Attempt:
        """Call it only if `can_admit`, without awaiting in between.

        is_last_resort: no endpoint of the pool can admit anything, and failing is not better than
        trying: streams are sent, and their reports count, whatever the state.

        Raises:
            RuntimeError: it cannot admit anything.
        """
        if not (self.can_admit or is_last_resort):
            raise RuntimeError("admit() on an endpoint that is ejected: ask can_admit before")
        self._is_probing = not self.is_closed
        return Attempt(self, self._round)

    def end_early(self) -> None:
        """Ends the ejection, half-open, for a pool that has no other endpoint left."""
        if self._ejected_until is not None:
            self._ejected_until = min(self._ejected_until, self._clock())

    def record_success(self, began_in: int) -> None:
        if began_in != self._round:
            return
        self._faults = 0
        if self._is_probing:
            self._ejected_until, self._is_probing = None, False
            self._closed_at = self._clock()
            self._round += 1

    def record_fault(self, began_in: int) -> None:
        if began_in != self._round:
            return
        self._faults = min(self._faults + 1, self._policy.consecutive_faults)
        if self._is_probing:
            self._eject()
        elif self._faults == self._policy.consecutive_faults and self._may_eject():
            self._forget()
            self._eject()

    def eject_slow(self) -> bool:
        """Its answers take far longer than other endpoints'. Returns whether it is ejected now."""
        if not self.is_closed or not self._may_eject():
            return False
        self._forget()
        self._eject()
        self.was_slow = True
        return True

    def record_abandoned(self, began_in: int) -> None:
        if began_in == self._round:
            self._is_probing = False

    def _eject(self) -> None:
        policy = self._policy
        self._level = min(self._level + 1, policy.most_ejections)
        self._ejected_until = self._clock() + min(self._level * policy.base_s, policy.most_s)
        self._is_probing = self.was_slow = False
        self._faults = 0
        self._round += 1
        self.ejections += 1

    def _forget(self) -> None:
        worked_s = self._clock() - self._closed_at
        self._level = max(0, self._level - int(worked_s // self._policy.forget_s))
