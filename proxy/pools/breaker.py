"""Ejects an endpoint that cannot be reached or is far too slow, as Envoy's outlier detection does.

The pool asks `can_admit` before it chooses an endpoint, calls `admit` for each stream that it sends
there, and reports once how the stream began.
"""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]
FAULTS = 5  # so many in a row eject the endpoint
BASE_S = 30.0  # the nth ejection in a row takes n times as long
LONGEST_S = 300.0
FORGET_S = 10.0  # for each such time that it works, one ejection is forgotten: Envoy's interval


class CircuitBreaker:
    """The breaker of one endpoint. Reports on streams that began before it last opened or closed
    change nothing.

    clock: seconds, monotonic. may_eject: whether the pool can do without this endpoint, see
    `Pool.may_eject`; it is asked before every ejection but a repeated one. A fault that may
    not eject still counts, so the next fault asks again.
    """

    def __init__(self, *, clock: Clock, may_eject: Callable[[], bool]) -> None:
        self._clock = clock
        self._may_eject = may_eject
        self._faults = 0
        self._level = 0  # ejections in a row: how many times BASE_S the last one took
        self._ejected_until: float | None = None
        self._is_probing = False
        self._closed_at = clock()
        self._round = 0  # counts how often it opened or closed
        self.ejections = 0
        self.was_slow = False  # why it was ejected last

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

    def admit(self, *, is_last_resort: bool = False) -> int:
        """Returns what the report on this stream names. Call it only if `can_admit`, without
        awaiting in between.

        is_last_resort: no endpoint of the pool can admit anything, and failing is not better than
        trying: streams are sent, and their reports count, whatever the state.

        Raises:
            RuntimeError: it cannot admit anything.
        """
        if self._ejected_until is not None:
            if not (self.can_admit or is_last_resort):
                raise RuntimeError("admit() on an endpoint that is ejected: ask can_admit before")
            self._is_probing = True
        return self._round

    def end_early(self) -> None:
        """Ends the ejection, half-open, for a pool that has no other endpoint left."""
        if self._ejected_until is not None:
            self._ejected_until = min(self._ejected_until, self._clock())

    def succeeded(self, round: int) -> None:
        """The endpoint answered: a token, or an error that is not its fault, such as a refused
        parameter or a full queue (429).
        """
        if round != self._round:
            return
        self._faults = 0
        if self._is_probing:
            self._ejected_until, self._is_probing = None, False
            self._closed_at = self._clock()
            self._round += 1

    def failed(self, round: int) -> None:
        """The connection failed, or the endpoint answered UNAVAILABLE."""
        if round != self._round:
            return
        self._faults = min(self._faults + 1, FAULTS)
        if self._is_probing:
            self._eject()
        elif self._faults == FAULTS and self._may_eject():
            self._forget()
            self._eject()

    def abandoned(self, round: int) -> None:
        """It ended before the endpoint answered: the caller disconnected, or its time was over."""
        if round == self._round:
            self._is_probing = False

    def eject_slow(self) -> bool:
        """Its answers take far longer than other endpoints'. Returns whether it is ejected now."""
        if not self.is_closed or not self._may_eject():
            return False
        self._forget()
        self._eject()
        self.was_slow = True
        return True

    def _eject(self) -> None:
        self._level = min(self._level + 1, int(LONGEST_S / BASE_S))
        self._ejected_until = self._clock() + self._level * BASE_S
        self._is_probing = self.was_slow = False
        self._faults = 0
        self._round += 1
        self.ejections += 1

    def _forget(self) -> None:
        worked_s = self._clock() - self._closed_at
        self._level = max(0, self._level - int(worked_s // FORGET_S))
