"""What has ended is remembered for a while, and for so many requests."""

from __future__ import annotations

from recent_ids import RecentIds


def test_an_id_is_here_until_its_time_is_over_and_the_oldest_go_first():
    now = 0.0
    ids = RecentIds(lambda: now, keep_s=60, most=3)
    ids.add("a")
    now = 59
    assert ids.has("a")
    assert ids.has("a"), "it stays"
    ids.add("b")
    now = 60
    assert not ids.has("a")
    assert ids.take("b")
    assert not ids.take("b"), "it was taken"
    for id_ in range(5):
        ids.add(id_)
    assert [id_ for id_ in range(5) if ids.has(id_)] == [2, 3, 4]
