"""How many endpoints of a pool may be ejected."""

from __future__ import annotations

import pytest

from proxy.pools.pool import may_eject


def ejected_of(endpoints: int, share: float) -> int:
    """How many are ejected when every one fails, one after the other."""
    ejected = 0
    while may_eject(
        endpoints=endpoints,
        ejected=ejected,
        healthy_others=endpoints - ejected - 1,
        most_share=share,
    ):
        ejected += 1
    return ejected


@pytest.mark.parametrize(
    ("endpoints", "share", "ejected"),
    [(1, 0.5, 0), (2, 0.5, 1), (3, 0.5, 1), (4, 0.5, 2), (10, 0.5, 5), (10, 0.0, 1), (10, 1.0, 9)],
)
def test_at_most_a_share_but_one_and_never_the_last_healthy_one(endpoints, share, ejected):
    assert ejected_of(endpoints, share) == ejected


def test_the_only_healthy_one_stays_though_nothing_is_ejected():
    assert not may_eject(endpoints=10, ejected=0, healthy_others=0)
