"""The fair queue in front of the real tritonserver and the ONNX engine, in tokens.

tests/bench/tenant_shares.py measures the same for longer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.mixed_load import MixedLoad, charged
from tests.fixtures.stack import HANG_S, Stack, eventually
from tests.fixtures.tenant_load import LoadedTenant, loaded, stack

WARM_UP_TOKENS, TOKENS = 500, 2_000
ROWS = 2


SMALL, LARGE = LoadedTenant(name="small", streams=12), LoadedTenant(name="large", streams=50)
ALL = LoadedTenant(name="all", streams=30)
SHORT = LoadedTenant(name="short", streams=2, lengths=(16,))
LONG = LoadedTenant(name="long", streams=12, lengths=(900,))
BOOKS = LoadedTenant(name="books", streams=0)
SPARE = 2


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Stack]:
    """With a key for each tenant that a test has to itself."""
    own = {"SPARE_STREAMS": str(SPARE), "FILES_URL": str(tmp_path_factory.mktemp("files"))}
    with stack(ROWS, SMALL, LARGE, ALL, SHORT, LONG, BOOKS, **own) as started:
        yield started


def share(url: str, first: LoadedTenant, second: LoadedTenant) -> float:
    """Of the tokens that both get, once they have enough together."""

    def tokens() -> int:
        return first.tokens + second.tokens

    async def have(wanted: int) -> None:
        first.tokens = second.tokens = 0
        while tokens() < wanted:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with loaded(url, "demo", (first, second)):
            await have(WARM_UP_TOKENS)
            await have(TOKENS)

    asyncio.run(run())
    return first.tokens / tokens()


def test_short_requests_get_their_rows_while_longer_answers_hold_all_of_them_and_the_spare_places(
    running,
):
    """Each long answer outlasts a dozen short ones, and gives up its row again and again."""
    # 0.016 where only three takeovers happen
    assert share(running.url, SHORT, LONG) > 0.05


def test_a_small_tenant_gets_half_when_it_asks_for_it_beside_one_with_fifty_streams(running):
    """It always asks: of its twelve streams some wait, however busy the callers' machine is."""
    assert 0.35 < share(running.url, SMALL, LARGE) < 0.65
    assert not SMALL.refusals


def test_requests_wait_in_the_proxy_and_the_engines_own_queue_stays_short(running):
    headers = {"Authorization": f"Bearer {ALL.key}"}
    running.settled_engine("demo")

    async def run() -> None:
        async with loaded(running.url, "demo", [ALL]):
            depths: list[float] = []

            def look() -> bool:
                depths.append(running.engine("demo")["requests_waiting"])
                return len(depths) >= 20

            await asyncio.to_thread(eventually, look, 30, "twenty looks")
            assert max(depths[5:]) <= SPARE
            await asyncio.to_thread(eventually, many_wait, 30, "most wait in the proxy")

    def many_wait() -> bool:
        page = httpx.get(f"{running.url}/metrics", headers=headers, timeout=HANG_S).text
        waiting = 'proxy_fair_queue_waiting{queue="default/demo"}'
        (line,) = (one for one in page.splitlines() if one.startswith(waiting))
        return float(line.rpartition(" ")[2]) >= 20

    asyncio.run(run())


MIXED = 80  # and a batch, where rows are idle


def test_what_tenants_are_charged_and_what_nobody_is_add_up_to_what_the_engine_counted(
    running,
):
    """The sums cover every stream that this file has sent: most of them have given up their row.
    They also cover mixed requests beside such streams, and the proxy's own trial of the model.
    """
    everybody = (SMALL, LARGE, ALL, SHORT, LONG, BOOKS)

    async def run() -> None:
        headers = {"Authorization": f"Bearer {BOOKS.key}"}
        options = {"base_url": running.url, "headers": headers, "timeout": HANG_S}
        async with loaded(running.url, "demo", (SHORT, LONG)), httpx.AsyncClient(**options) as one:
            await MixedLoad(one, random.Random(1)).send(MIXED)
        async with httpx.AsyncClient(**options) as one:
            await MixedLoad(one, random.Random(1)).send(0, batches=1)

    asyncio.run(run())
    engine = running.settled_engine("demo")
    counted = engine["prompt_tokens"] + engine["generated_tokens"]
    keys = [each.key for each in everybody]
    eventually(lambda: charged(running.url, keys) == counted, 5, "the books balance")
