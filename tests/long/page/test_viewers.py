"""Ten viewers of the live status cost the proxy hardly anything."""

from __future__ import annotations

import asyncio

from tests.long.page.viewers import measured, proxy

MOST = 0.03  # of a core; a machine that does nothing else shows less than a hundredth


def test_ten_viewers_cost_hardly_anything():
    with proxy() as (url, process):
        shares = asyncio.run(measured(url, process, seconds=5))
    assert shares["more"] < MOST, shares
