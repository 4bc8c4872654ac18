"""The share of a new endpoint."""

from __future__ import annotations

from itertools import pairwise

import pytest

from proxy.pools.candidate import FIRST_SHARE, slow_start_share


def test_the_share_grows_from_little_to_all_and_is_nearly_there_after_five_seconds():
    shares = [slow_start_share(age / 10) for age in range(120)]
    assert shares[0] == FIRST_SHARE
    assert all(before <= after for before, after in pairwise(shares))
    assert shares[10] < 0.5, "no herd in the first second"
    assert shares[50] > 0.9, "its share within five seconds"
    assert set(shares[100:]) == {1.0}


@pytest.mark.parametrize("age_s", [-1.0, 0.0, 5.0])
def test_without_a_window_everything_at_once(age_s):
    assert slow_start_share(max(age_s, 0.0), 0.0) == 1.0
    assert FIRST_SHARE <= slow_start_share(age_s, 10.0) <= 1.0
