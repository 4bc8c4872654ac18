"""Batches whose proxies and Redis are killed 200 times."""

from __future__ import annotations

import pytest

from tests.fixtures.redis_server import needs_redis
from tests.server.test_batches import assert_each_line_once


@needs_redis
@pytest.mark.timeout(3600)
def test_each_line_counts_once_under_200_kills(start, stack, tmp_path):
    assert_each_line_once(start, stack, tmp_path, 200)
