"""Ids that are remembered for a while; what takes them: tests/server, and test_slow_guides."""

from __future__ import annotations

from recent_ids import RecentIds


def test_an_id_is_forgotten_after_its_time():
    now_s = [0.0]
    ids = RecentIds(lambda: now_s[0], keep_s=60)
    ids.add("a")
    now_s[0] = 59
    assert ids.has("a")
    now_s[0] = 60
    assert not ids.has("a")
    assert not ids.take("a")


def test_their_number_is_bounded_the_oldest_go_first():
    ids = RecentIds(most=3)
    for number in range(5):
        ids.add(number)
    assert [ids.take(number) for number in range(5)] == [False, False, True, True, True]
