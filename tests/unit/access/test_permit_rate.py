"""PermitRate: how long until permits are back."""

from __future__ import annotations

import pytest

from proxy.access.concurrency import LONGEST_S, SHORTEST_S, UNKNOWN_S, PermitRate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_returns_the_wait_is_a_guess():
    assert PermitRate().wait_s(1) == UNKNOWN_S


def test_the_wait_is_the_missing_permits_over_the_measured_rate():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(11):  # one each half second
        rate.returned(1)
        clock.now += 0.5
    assert rate.wait_s(1) == pytest.approx(0.55)
    assert rate.wait_s(10) == pytest.approx(5.5)


def test_permits_that_come_back_together_count_each():
    clock = Clock()
    rate = PermitRate(clock)
    rate.returned(4)
    clock.now += 2
    rate.returned(4)
    assert rate.wait_s(2) == pytest.approx(1.0)


def test_a_rate_that_has_dried_up_means_a_longer_wait():
    clock = Clock()
    rate = PermitRate(clock)
    rate.returned(1)
    rate.returned(1)
    soon = rate.wait_s(1)
    clock.now += 30
    assert rate.wait_s(1) > soon


def test_no_wait_is_shorter_or_longer_than_clients_take():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(64):
        rate.returned(128)
    assert rate.wait_s(1) == SHORTEST_S
    clock.now += 100_000
    assert rate.wait_s(128) == LONGEST_S


def test_a_client_that_returns_on_time_finds_a_permit():
    """Permits come back every 200 ms: at the time told, at least one more has."""
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(20):
        clock.now += 0.2
        rate.returned(1)
    asked_at = clock.now + 0.05
    clock.now = asked_at
    told = rate.wait_s(1)
    assert 0.15 <= told <= 0.25
