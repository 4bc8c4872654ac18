"""The circuit breaker of an endpoint, on a clock that the tests move."""

from __future__ import annotations

import pytest

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


def test_while_it_is_ejected_one_request_at_a_time_may_try_it():
    pool = Pool()
    late = pool.breaker.admit()
    pool.fail(FAULTS)
    pool.now_s += 30
    pool.breaker.succeeded(late)
    assert pool.state == "half_open", "what began before the ejection says nothing of it"
    trying = pool.breaker.admit()
    pool.breaker.succeeded(late)
    assert pool.state == "half_open", "nor does it while another request tries it"
    assert not pool.breaker.can_admit
    pool.breaker.abandoned(trying)
    assert (pool.state, pool.breaker.can_admit) == ("half_open", True)
    pool.succeed()
    assert (pool.state, pool.breaker.ejections) == ("closed", 1)


def test_a_fault_that_may_not_eject_still_counts():
    pool = Pool()
    pool.may_eject = False
    pool.fail(2 * FAULTS)
    assert pool.state == "closed"
    pool.may_eject = True
    pool.fail()
    assert pool.state == "ejected"
    pool.may_eject = False
    pool.now_s += 30
    pool.fail()
    assert pool.breaker.ejected_for_s == 60, "a repeated ejection asks nobody"


def test_a_slow_endpoint_is_ejected_once_and_says_why():
    pool = Pool()
    assert pool.breaker.eject_slow()
    assert not pool.breaker.eject_slow()
    assert (pool.state, pool.breaker.was_slow) == ("ejected", True)
