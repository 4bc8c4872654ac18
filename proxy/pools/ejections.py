"""How many endpoints of a pool may be ejected at once."""

from __future__ import annotations

MOST_SHARE = 0.5


def may_eject(
    *, endpoints: int, ejected: int, healthy_others: int, most_share: float = MOST_SHARE
) -> bool:
    """Whether one more endpoint of a pool may be ejected.

    endpoints: all of the pool. ejected: those whose breaker is not closed. healthy_others: those
    that would still get new streams. At most `most_share` of the endpoints are ejected, but one
    may always be, and never the last healthy one.
    """
    most = max(1, int(endpoints * most_share))
    return healthy_others >= 1 and ejected < most
