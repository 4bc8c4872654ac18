"""The fair queue in front of the real tritonserver and the ONNX engine, in tokens.

tests/bench/tenant_shares.py measures the same for longer, and what the queue costs in throughput.
"""

from __future__ import annotations

import asyncio

import httpx

from tests.bench.tenant_shares import stack
from tests.fixtures.stack import HANG_S, eventually
from tests.fixtures.tenant_load import LoadedTenant, loaded

WARM_UP_TOKENS, TOKENS = 2_000, 6_000
ROWS = 2


def shared(*tenants: LoadedTenant, **settings: str) -> None:
    """Fills in the tenants' tokens, once they have enough together."""

    async def have(tokens: int) -> None:
        for one in tenants:
            one.tokens = 0
        while sum(one.tokens for one in tenants) < tokens:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)

    async def run(url: str) -> None:
        async with loaded(url, "demo", tenants):
            await have(WARM_UP_TOKENS)
            await have(TOKENS)

    with stack(ROWS, *tenants, **settings) as running:
        asyncio.run(run(running.url))


def test_a_small_tenant_gets_half_when_it_asks_for_it_beside_one_with_fifty_streams():
    """It always asks: of its twelve streams some wait, however busy the callers' machine is."""
    small = LoadedTenant(name="small", streams=12)
    large = LoadedTenant(name="large", streams=50)
    shared(small, large, SPARE_STREAMS="1")
    share = small.tokens / (small.tokens + large.tokens)
    assert 0.35 < share < 0.65, (small.tokens, large.tokens)
    assert not small.refusals


def test_short_requests_get_their_rows_while_longer_answers_hold_all_of_them_and_the_spare_places():
    """Each long answer outlasts a dozen short ones, and gives up its row again and again."""
    small = LoadedTenant(name="small", streams=2, lengths=(16,))
    large = LoadedTenant(name="large", streams=12, lengths=(900,))
    shared(small, large, SPARE_STREAMS="2")
    share = small.tokens / (small.tokens + large.tokens)
    assert share > 0.05, (small.tokens, large.tokens)  # 0.016 where only three takeovers happen


def test_weights_of_one_and_three_share_the_tokens_so():
    one, three = LoadedTenant(name="one", streams=12), LoadedTenant(name="three", streams=12)
    three.weight = 3.0
    shared(one, three, SPARE_STREAMS="1")
    share = one.tokens / (one.tokens + three.tokens)
    assert 0.15 < share < 0.35, (one.tokens, three.tokens)


def test_requests_wait_in_the_proxy_and_the_engines_own_queue_stays_short():
    tenant = LoadedTenant(name="all", streams=30)

    async def run(running) -> None:
        async with loaded(running.url, "demo", [tenant]):
            depths: list[float] = []

            def look() -> bool:
                depths.append(running.engine("demo")["requests_waiting"])
                return len(depths) >= 20

            await asyncio.to_thread(eventually, look, 30, "twenty looks")
            assert max(depths[5:]) <= 1
            await asyncio.to_thread(eventually, many_wait, 30, "most wait in the proxy")

    def many_wait() -> bool:
        page = httpx.get(f"{running.url}/metrics", headers=headers, timeout=HANG_S).text
        waiting = 'proxy_fair_queue_waiting{queue="default/demo"}'
        (line,) = (one for one in page.splitlines() if one.startswith(waiting))
        return float(line.rpartition(" ")[2]) >= 20

    with stack(ROWS, tenant, SPARE_STREAMS="1") as running:
        headers = {"Authorization": f"Bearer {tenant.key}"}
        asyncio.run(run(running))
