"""Ids that are remembered for a minute."""

from __future__ import annotations

from recent_ids import KEEP_AT_MOST, KEEP_S, RecentIds


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_id_is_forgotten_after_a_minute():
    clock = Clock()
    ids = RecentIds(clock)
    ids.add("a")
    clock.now = KEEP_S + 1
    assert not ids.take("a")


def test_their_number_is_bounded_the_oldest_go_first():
    ids = RecentIds()
    for number in range(KEEP_AT_MOST + 5):
        ids.add(str(number))
    assert not ids.take("0")
    assert ids.take(str(KEEP_AT_MOST + 4))
