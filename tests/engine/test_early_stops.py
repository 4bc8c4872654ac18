"""Stops that come before their request."""

from __future__ import annotations

from early_stops import KEEP_AT_MOST, KEEP_S, EarlyStops


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stop_counts_once_and_only_for_its_request():
    stops = EarlyStops()
    stops.add("a")
    assert not stops.take("b")
    assert stops.take("a")
    assert not stops.take("a")


def test_a_stop_is_forgotten_after_a_minute():
    clock = Clock()
    stops = EarlyStops(clock)
    stops.add("a")
    clock.now = KEEP_S + 1
    assert not stops.take("a")


def test_their_number_is_bounded_the_oldest_go_first():
    stops = EarlyStops()
    for number in range(KEEP_AT_MOST + 5):
        stops.add(str(number))
    assert not stops.take("0")
    assert stops.take(str(KEEP_AT_MOST + 4))
