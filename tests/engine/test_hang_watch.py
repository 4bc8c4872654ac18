"""HangWatch: time without progress counts only while requests are in flight."""

from __future__ import annotations

import pytest

from hang_watch import HangWatch

PROGRESS = None


@pytest.mark.parametrize(
    "steps",
    [  # (seconds that pass, requests in flight meanwhile, whether it hangs then)
        [(300, 1, False), (0.1, 1, True)],
        [(299, 3, False), PROGRESS, (299, 3, False), PROGRESS, (299, 3, False)],
        [(10_000, 0, False), (200, 1, False), (101, 1, True)],
        # A proxy gives up after STALL_TIMEOUT_S, 120 s by default: requests that are cancelled.
        [(120, 1, False), (3600, 0, False), (120, 1, False), (3600, 0, False), (61, 1, True)],
        [(200, 1, False), (101, 2, True)],
    ],
    ids=["limit", "progress", "idle", "cancelled requests add up", "a further request"],
)
def test_it_hangs_after_the_limit_without_progress(steps):
    now_s = [1000.0]
    watch = HangWatch(300, lambda: now_s[0])
    for step in steps:
        if step is PROGRESS:
            watch.progressed()
            assert watch.stalled_s(in_flight=3) == 0
            continue
        seconds, in_flight, hangs = step
        now_s[0] += seconds
        assert watch.is_hung(in_flight) is hangs
