"""The circuit breaker of an endpoint, on a clock that the tests move."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.pools.breaker import Attempt, BreakerPolicy, BreakerState, CircuitBreaker

POLICY = BreakerPolicy(consecutive_faults=3, base_s=30, most_s=100, forget_s=10)


class Pool:
    """A clock, a pool that says whether it can do without the endpoint, and the breaker."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.now_s = 1_000.0
        self.may_eject = True
        self.breaker = CircuitBreaker(
            policy, clock=lambda: self.now_s, may_eject=lambda: self.may_eject
        )

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.admit().failed()


def test_it_takes_consecutive_faults_to_eject():
    pool = Pool()
    pool.fail(2)
    pool.breaker.admit().succeeded()
    pool.fail(2)
    assert pool.breaker.state is BreakerState.CLOSED
    pool.fail()
    assert pool.breaker.state is BreakerState.EJECTED
    assert (pool.breaker.ejected_for_s, pool.breaker.ejections) == (30, 1)
    assert not pool.breaker.can_admit
    with pytest.raises(RuntimeError, match="can_admit"):
        pool.breaker.admit()


def test_after_the_ejection_exactly_one_request_tries_and_its_success_closes():
    pool = Pool()
    pool.fail(3)
    pool.now_s += 30
    assert pool.breaker.state is BreakerState.HALF_OPEN
    probe = pool.breaker.admit()
    assert not pool.breaker.can_admit
    probe.succeeded()
    assert pool.breaker.state is BreakerState.CLOSED
    assert pool.breaker.can_admit


def test_a_probe_that_is_abandoned_makes_room_for_another():
    pool = Pool()
    pool.fail(3)
    pool.now_s += 30
    pool.breaker.admit().abandoned()
    assert pool.breaker.can_admit
    assert pool.breaker.state is BreakerState.HALF_OPEN


def test_ejections_in_a_row_grow_to_a_bound_and_shrink_while_it_works():
    pool = Pool()
    lengths = []
    pool.fail(3)
    for _ in range(5):
        lengths.append(pool.breaker.ejected_for_s)
        pool.now_s += pool.breaker.ejected_for_s
        pool.fail()
    assert lengths == [30, 60, 90, 100, 100]
    pool.now_s += 100
    pool.breaker.admit().succeeded()
    pool.now_s += 35  # three ejections are forgotten, of four that count
    pool.fail(3)
    assert pool.breaker.ejected_for_s == 60


def test_results_of_streams_from_before_the_ejection_change_nothing():
    pool = Pool()
    earlier = [pool.breaker.admit() for _ in range(4)]
    pool.fail(3)
    earlier[0].succeeded()
    earlier[1].failed()
    assert pool.breaker.ejected_for_s == 30
    pool.now_s += 30
    probe = pool.breaker.admit()
    earlier[2].abandoned()
    earlier[3].succeeded()
    assert not pool.breaker.can_admit
    probe.succeeded()
    assert pool.breaker.is_closed


def test_an_attempt_counts_once():
    pool = Pool()
    attempt = pool.breaker.admit()
    attempt.failed()
    attempt.failed()
    attempt.succeeded()
    pool.fail(2)
    assert pool.breaker.state is BreakerState.EJECTED


def test_the_pool_may_forbid_the_ejection_and_the_next_fault_asks_again():
    pool = Pool()
    pool.may_eject = False
    pool.fail(10)
    assert pool.breaker.state is BreakerState.CLOSED
    pool.may_eject = True
    pool.fail()
    assert pool.breaker.state is BreakerState.EJECTED


def test_an_ejection_can_be_ended_early_but_still_takes_one_request_to_close():
    pool = Pool()
    pool.breaker.end_early()
    pool.fail(3)
    pool.breaker.end_early()
    assert pool.breaker.state is BreakerState.HALF_OPEN
    pool.fail()
    assert pool.breaker.ejected_for_s == 60


@pytest.mark.parametrize(
    "wrong", [{"consecutive_faults": 0}, {"base_s": 0}, {"most_s": 1}, {"forget_s": 0}]
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong):
    name = next(iter(wrong)).replace("most_s", "base_s")
    with pytest.raises(ValueError, match=name):
        BreakerPolicy(**wrong)


class Reference:
    """The same in the simplest words: a list of what happened since the last change of state."""

    def __init__(self) -> None:
        self.state, self.faults, self.row = "closed", 0, 0
        self.until = self.since = 0.0
        self.probe: object | None = None

    def at(self, now: float) -> str:
        return "half_open" if self.state == "ejected" and now >= self.until else self.state

    def eject(self, now: float) -> None:
        self.row = min(self.row + 1, 4)  # 4 times 30 s is over 100 s
        self.state, self.faults, self.probe = "ejected", 0, None
        self.until = now + min(30 * self.row, 100)

    def ended(self, attempt: object, result: str, now: float, may_eject: bool) -> None:
        """Of an attempt that began in this period."""
        if self.state == "ejected":
            assert attempt is self.probe
            self.probe = None
            if result == "failed":
                self.eject(now)
            elif result == "succeeded":
                self.state, self.since, self.faults = "closed", now, 0
        elif result == "succeeded":
            self.faults = 0
        elif result == "failed":
            self.faults += 1
            if self.faults >= 3 and may_eject:
                self.row = max(0, self.row - int((now - self.since) // 10))
                self.eject(now)


class AgainstReference(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.reference = Pool(), Reference()
        self.reference.since = self.pool.now_s
        self.period = 0
        self.open: list[tuple[Attempt, int]] = []

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
        getattr(attempt, result)()
        self.period += before != (self.reference.state, self.reference.until)

    @invariant()
    def they_agree(self) -> None:
        breaker, now = self.pool.breaker, self.pool.now_s
        state = self.reference.at(now)
        assert breaker.state.value == state
        assert breaker.can_admit == (
            state == "closed" or (state == "half_open" and self.reference.probe is None)
        )
        left = self.reference.until - now if state == "ejected" else 0
        assert breaker.ejected_for_s == left


TestAgainstReference = AgainstReference.TestCase
