"""How large a share of the work a new or returned endpoint gets."""

from __future__ import annotations

WINDOW_S = 10.0
FIRST_SHARE = 0.1


def slow_start_share(age_s: float, window_s: float = WINDOW_S) -> float:
    """Its share of what it will have later, from FIRST_SHARE to 1; 1 after the window.

    age_s: time since the endpoint became ready or its breaker closed. window_s: 0 for no slow
    start. The rest of the way falls with the fourth power of the remaining time: 40 % after a tenth
    of the window, 94 % after half of it. A straight line would still be at 55 % then. The first
    requests are few, so that caches and connections warm up, and most of the share is there within
    5 s, as a scaled deployment needs it. The share bounds the endpoint's outstanding work, not its
    rate, so a herd of requests at the beginning cannot exceed it.
    """
    if window_s <= 0 or age_s >= window_s:
        return 1.0
    remaining = 1.0 - max(0.0, age_s) / window_s
    return FIRST_SHARE + (1.0 - FIRST_SHARE) * (1.0 - remaining**4)
