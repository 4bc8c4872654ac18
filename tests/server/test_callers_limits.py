"""Limits of tenants, keys and models hold over HTTP, in two proxies, while one is killed.

tests/long/test_callers_limits.py does the same with 500 keys.
"""

from __future__ import annotations

import asyncio

from tests.fixtures.limit_load.callers import Answer
from tests.fixtures.limit_load.checks import at_once, in_any_window
from tests.fixtures.limit_load.faults import with_a_proxy_killed
from tests.fixtures.limit_load.scenario import SMALL
from tests.fixtures.limit_load.tenants import Key, Tenant, kinds
from tests.fixtures.redis_server import needs_redis, running


@needs_redis
def test_while_a_proxy_is_killed(start, scripted_stack, tmp_path):
    with running(tmp_path) as redis:
        asyncio.run(with_a_proxy_killed(start, scripted_stack, tmp_path, SMALL, redis))


def admitted(sent_s: float, known_s: float, runs_until_s: float = 0.0) -> Answer:
    kind = kinds(3, 5)[0]
    key = Key(secret="", number=0, tenant=Tenant(name="t", kind=kind, keys=[]))
    times = {"sent_s": sent_s, "known_s": known_s, "runs_until_s": runs_until_s}
    return Answer(key=key, status=200, **times)


def test_the_check_of_windows_finds_one_too_many_and_counts_only_what_is_certain():
    answers = [admitted(0, 1), admitted(50, 51), admitted(59, 61), admitted(110, 112)]
    assert in_any_window("requests", answers, 60) == 2
    assert in_any_window("requests", answers, 63) == 3


def test_the_check_of_what_runs_at_once_counts_only_what_is_certain():
    assert at_once([admitted(0, 1, 5), admitted(0, 4, 6), admitted(0, 5, 7)]) == 2
    assert at_once([admitted(0, 5, 4)]) == 0
