"""What a streamed chat passes in the proxy may shrink, and not grow unnoticed."""

from __future__ import annotations

import asyncio

from tests.bench import request_trace

# `python -m tests.bench.request_trace` prints the counts. Lower a limit when its count has shrunk.
LIMITS = {
    "first byte, files": 83,
    "first byte, functions": 313,
    "first byte, calls": 373,
    "first byte, changes of package": 96,
    "delta, files": 16,
    "delta, calls": 37,
}


def test_a_streamed_chat_passes_no_more_of_the_proxy_than_before():
    counts = request_trace.table(asyncio.run(request_trace.traces()))
    assert counts.keys() == LIMITS.keys()
    assert {name: count for name, count in counts.items() if count > LIMITS[name]} == {}
