"""Ten viewers of the live status cost the proxy less than a hundredth of a core."""

from __future__ import annotations

import asyncio

from tests.long.page.viewers import measured, proxy

MOST = 0.01


def test_ten_viewers_cost_less_than_a_hundredth_of_a_core():
    with proxy() as (url, process):
        shares = asyncio.run(measured(url, process, seconds=15))
    assert shares["more"] < MOST, shares
