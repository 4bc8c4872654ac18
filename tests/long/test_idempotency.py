"""Over 1,000 requests with keys, random disconnects and retries."""

from __future__ import annotations

import asyncio

from tests.server.test_idempotency import assert_one_generation_a_key

MB = 1_000_000


def test_a_thousand_requests_with_keys(start, scripted_stack):
    asyncio.run(assert_one_generation_a_key(start, scripted_stack, 200, growth_bytes=40 * MB))
