"""Requests for a model that no endpoint serves: what callers see of the wait, and floods."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from proxy.domain.model import ModelCard
from proxy.models.readiness import CHECK_EVERY_S
from tests.api.queue.test_queue import BODY, CHAT, HEADER, QUEUE, STREAM, Stand, code_of
from tests.doubles.engine import FACTS, FixedCatalog
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.limits import AsCaller, caller

GUIDED = {**BODY, "guided_regex": "a+"}
READY = "/health/ready"


class AtZero(FixedCatalog):
    """It was seen once. reason: why there is no endpoint now."""

    def is_available(self, card: ModelCard) -> bool:
        return self.reason is None


@asynccontextmanager
async def at_zero(**settings: object):
    """A proxy whose only Triton has gone."""
    catalog = AtZero(facts=replace(FACTS, rows=1, says_rows=True))
    stand = Stand(catalog=catalog, **{"hold_timeout_s": 60.0, **settings})
    async with started(stand.app):
        catalog.reason = "it was scaled to zero"
        stand.scheduler.set_capacity(QUEUE, 0)
        await asyncio.sleep(2 * CHECK_EVERY_S)

        def wake(rows: int) -> None:
            catalog.reason = None
            stand.scheduler.set_capacity(QUEUE, rows)

        yield stand, wake


@pytest.mark.anyio
@pytest.mark.parametrize("body", [BODY, STREAM, GUIDED])
async def test_a_request_waits_and_is_answered_and_the_proxy_stays_ready(body):
    async with at_zero() as (proxy, wake):
        call = proxy.ask(body)
        await proxy.until(0, 1)
        ready = await Call(proxy.app, READY, b"", {}, method="GET").done()
        assert ready.status == 200
        assert "1 of 1 models have no endpoint" in ready.json()["concerns"][0]
        wake(1)
        await proxy.until(1, 0)
        proxy.engine.let_go()
        assert (await call.done()).status == 200
        assert call.headers["x-queue-position"] == "0"


@pytest.mark.anyio
async def test_a_stream_shows_its_position_while_it_waits():
    async with at_zero(keep_alive_s=0.2) as (proxy, wake):
        calls = [proxy.ask(STREAM)]
        await proxy.until(0, 1)
        calls.append(proxy.ask(STREAM))
        await calls[1].until(lambda call: b": queue 2\n" in call.body)
        assert calls[1].headers["x-queue-position"] == "2"
        wake(2)
        await proxy.until(2, 0)
        for call in calls:
            proxy.engine.let_go()
            assert (await call.done()).body.endswith(b"data: [DONE]\n\n")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "header", "expected"),
    [
        ({"hold_timeout_s": 0.05}, {}, (429, "queue_full")),
        ({}, {HEADER: "50"}, (429, "queue_full")),
        ({}, {HEADER: "0"}, (429, "queue_full")),
        ({"hold_timeout_s": 0}, {}, (503, "model_unavailable")),
    ],
)
async def test_a_request_waits_no_longer_than_it_may(settings, header, expected):
    async with at_zero(**settings) as (proxy, _):
        call = await proxy.ask(BODY, **header).done()
        assert code_of(call) == expected
        if expected[0] == 429:
            assert int(call.headers["retry-after"]) >= 1
            assert "server of this model" in call.json()["error"]["message"]


@pytest.mark.anyio
async def test_a_flood_of_one_tenant_is_bounded_costs_little_and_leaves_places_to_others():
    async with at_zero(held_requests=20, held_mb=0.1) as (proxy, wake):
        flood = [proxy.ask({**BODY, "n": 2}) for _ in range(100)]
        await proxy.until(0, 20)
        began = time.process_time()
        refused = await asyncio.gather(*(proxy.ask(BODY).done() for _ in range(200)))
        assert (time.process_time() - began) / 200 < 0.05
        assert {code_of(one) for one in refused} == {(429, "queue_full")}
        large = {**BODY, "messages": [{"role": "user", "content": "x" * 200_000}]}
        assert code_of(await proxy.ask(large).done()) == (429, "queue_full")
        others = [
            Call(AsCaller(proxy.app, caller("other", "k2")), CHAT, BODY, {}) for _ in range(10)
        ]
        wake(100)  # the registry sees it half a second later
        calls = [*flood, *others]
        for _ in range(1_000):
            if all(one.task.done() for one in calls):
                break
            while proxy.engine.turns:
                proxy.engine.let_go()
            await asyncio.sleep(0.01)
        assert [one.status for one in others] == [200] * 10
        done = Counter(one.status for one in flood)
        assert done.keys() == {200, 429}
        assert done[200] * 2 <= 20


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wide", "is_held"), [("", True), ("é", True), ("語", False), ("\U0001f600", False)]
)
async def test_a_text_counts_as_much_as_memory_has_of_it(wide, is_held):
    """One wide character makes all others of a text as wide: one, one, two or four bytes each."""
    async with at_zero(held_mb=0.15) as (proxy, _):
        call = proxy.ask({**BODY, "messages": [{"role": "user", "content": "x" * 100_000 + wide}]})
        if is_held:
            await proxy.until(0, 1)
            call.task.cancel()
        else:
            assert code_of(await call.done()) == (429, "queue_full")
