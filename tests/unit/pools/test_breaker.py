"""The circuit breaker of an endpoint, on a clock that the tests move."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.pools.breaker import FAULTS, CircuitBreaker


class Pool:
    """A clock, a pool that says whether it can do without the endpoint, and the breaker."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.may_eject = True
        self.breaker = CircuitBreaker(clock=lambda: self.now_s, may_eject=lambda: self.may_eject)

    @property
    def state(self) -> str:
        if self.breaker.is_closed:
            return "closed"
        return "ejected" if self.breaker.ejected_for_s else "half_open"

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.failed(self.breaker.admit())

    def succeed(self) -> None:
        self.breaker.succeeded(self.breaker.admit())


def test_it_takes_consecutive_faults_to_eject():
    pool = Pool()
    pool.fail(FAULTS - 1)
    pool.succeed()
    pool.fail(FAULTS - 1)
    assert pool.state == "closed"
    pool.fail()
    assert (pool.breaker.ejected_for_s, pool.breaker.ejections) == (30, 1)
    with pytest.raises(RuntimeError, match="can_admit"):
        pool.breaker.admit()


def test_ejections_in_a_row_grow_to_a_bound_and_shrink_while_it_works():
    pool = Pool()
    lengths = []
    pool.fail(FAULTS)
    for _ in range(12):
        lengths.append(pool.breaker.ejected_for_s)
        pool.now_s += pool.breaker.ejected_for_s
        pool.fail()
    assert lengths == [*range(30, 300, 30), 300, 300, 300]
    pool.now_s += 300
    pool.succeed()
    pool.now_s += 85  # eight ejections are forgotten, of ten that count
    pool.fail(FAULTS)
    assert pool.breaker.ejected_for_s == 90


def test_an_ejection_can_be_ended_early_but_still_takes_one_request_to_close():
    pool = Pool()
    pool.breaker.end_early()
    pool.fail(FAULTS)
    pool.breaker.end_early()
    assert pool.state == "half_open"
    pool.fail()
    assert pool.breaker.ejected_for_s == 60


class Reference:
    """The same in the simplest words: a list of what happened since the last change of state."""

    def __init__(self) -> None:
        self.state, self.faults, self.row = "closed", 0, 0
        self.until = self.since = 0.0
        self.probe: object | None = None

    def at(self, now: float) -> str:
        return "half_open" if self.state == "ejected" and now >= self.until else self.state

    def eject(self, now: float) -> None:
        self.row = min(self.row + 1, 10)
        self.state, self.faults, self.probe = "ejected", 0, None
        self.until = now + 30 * self.row

    def ended(self, attempt: object, result: str, now: float, may_eject: bool) -> None:
        """Of an attempt that began in this period."""
        if self.state == "ejected":
            assert attempt == self.probe
            self.probe = None
            if result == "failed":
                self.eject(now)
            elif result == "succeeded":
                self.state, self.since, self.faults = "closed", now, 0
        elif result == "succeeded":
            self.faults = 0
        elif result == "failed":
            self.faults += 1
            if self.faults >= 5 and may_eject:
                self.row = max(0, self.row - int((now - self.since) // 10))
                self.eject(now)


class AgainstReference(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.reference = Pool(), Reference()
        self.reference.since = self.pool.now_s
        self.period = 0
        self.open: list[tuple[int, int]] = []

    @rule(seconds=st.sampled_from([0.5, 9, 10, 30, 100, 1000]))
    def wait(self, seconds: float) -> None:
        self.pool.now_s += seconds

    @rule(may=st.booleans())
    def decide(self, may: bool) -> None:
        self.pool.may_eject = may

    @precondition(lambda self: self.pool.breaker.can_admit)
    @rule()
    def begin(self) -> None:
        attempt = self.pool.breaker.admit()
        if self.reference.state == "ejected":
            assert self.reference.probe is None
            self.reference.probe = attempt
        self.open.append((attempt, self.period))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), result=st.sampled_from(["failed", "failed", "succeeded", "abandoned"]))
    def end(self, data: st.DataObject, result: str) -> None:
        attempt, period = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.reference.state, self.reference.until
        if period == self.period:
            self.reference.ended(attempt, result, self.pool.now_s, self.pool.may_eject)
        getattr(self.pool.breaker, result)(attempt)
        self.period += before != (self.reference.state, self.reference.until)

    @invariant()
    def they_agree(self) -> None:
        breaker, now = self.pool.breaker, self.pool.now_s
        state = self.reference.at(now)
        assert self.pool.state == state
        assert breaker.can_admit == (
            state == "closed" or (state == "half_open" and self.reference.probe is None)
        )
        left = self.reference.until - now if state == "ejected" else 0
        assert breaker.ejected_for_s == left


TestAgainstReference = AgainstReference.TestCase
