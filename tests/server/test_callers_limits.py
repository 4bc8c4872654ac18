"""Limits of tenants, keys and models hold over HTTP, in two proxies, while one is killed.

tests/long/test_callers_limits.py does the same with 500 keys.
"""

from __future__ import annotations

import asyncio

from tests.fixtures.limit_load.faults import with_a_proxy_killed
from tests.fixtures.limit_load.scenario import SMALL
from tests.fixtures.redis_server import needs_redis, running


@needs_redis
def test_while_a_proxy_is_killed(start, scripted_stack, tmp_path):
    with running(tmp_path) as redis:
        asyncio.run(with_a_proxy_killed(start, scripted_stack, tmp_path, SMALL, redis))
