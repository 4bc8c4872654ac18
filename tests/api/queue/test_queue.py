"""What callers see of the fair queue: positions, comments, failing fast, and a true queue_full."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from proxy.domain.engine import EngineRequest
from proxy.scheduling.in_process import InProcessScheduler
from proxy.settings import Settings
from proxy.telemetry.metrics import QueueMetrics
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.limits import AsCaller, caller

CHAT, TEXT, PLAIN = "/v1/chat/completions", "/v1/completions", "/chat/sse"
QUEUE = "default/demo"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "demo", "prompt": "hi"}
STREAM = {**BODY, "stream": True}
ONE_ROW = FixedCatalog(facts=replace(FACTS, rows=1, says_rows=True))
HEADER = "x-queue-timeout-ms"


class HeldEngine(ScriptedEngine):
    """Each stream waits for its turn before its first delta: `let_go` lets the oldest go on."""

    def __init__(self) -> None:
        super().__init__(deltas("ab"))
        self.turns: list[asyncio.Event] = []

    async def generate(self, request: EngineRequest):
        turn = asyncio.Event()
        self.turns.append(turn)
        await turn.wait()
        async for delta in super().generate(request):
            yield delta

    def let_go(self) -> None:
        """The oldest stream that is held."""
        self.turns.pop(0).set()


class Stand:
    """The proxy over one row. later_s: how far the queue's clock was moved on."""

    def __init__(self, catalog: FixedCatalog = ONE_ROW, **settings: object) -> None:
        self.later_s = 0.0
        self.engine = HeldEngine()
        self.scheduler = InProcessScheduler(
            Settings(**settings),
            QueueMetrics(CollectorRegistry()),
            clock=lambda: time.monotonic() + self.later_s,
        )
        self.scheduler.set_capacity(QUEUE, 1)
        self.app = application(self.engine, catalog, scheduler=self.scheduler, **settings)

    def ask(self, body: dict, path: str = CHAT, **headers: str) -> Call:
        return Call(AsCaller(self.app, caller()), path, body, headers)

    def numbers(self) -> tuple[int, int]:
        """Streams that run and that wait."""
        (state,) = self.scheduler.states()
        return state.running, state.waiting

    async def until(self, running: int, waiting: int) -> None:
        for _ in range(60_000):
            if self.numbers() == (running, waiting) and len(self.engine.turns) >= running:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{self.numbers()} run and wait")


@asynccontextmanager
async def standing(**settings: object) -> AsyncIterator[Stand]:
    stand = Stand(**settings)
    async with started(stand.app):
        yield stand


def queued(call: Call) -> tuple[str | None, bool]:
    """The position, and whether the answer says that it waited."""
    waited = call.headers.get("x-queue-wait")
    return call.headers.get("x-queue-position"), waited is not None and float(waited) > 0


def code_of(call: Call) -> tuple[int, str]:
    return call.status, call.json()["error"]["code"]


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "body"), [(CHAT, BODY), (TEXT, PROMPT), (CHAT, STREAM)])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}])
async def test_only_an_answer_that_has_waited_says_so(path, body, key):
    async with standing() as proxy:
        first = proxy.ask(body, path)
        await proxy.until(1, 0)
        second = proxy.ask(body, path, **key)
        await proxy.until(1, 1)
        await asyncio.sleep(0.01)  # the header has milliseconds
        proxy.engine.let_go()
        assert queued(await first.done()) == (None, False)
        await proxy.until(1, 0)
        proxy.engine.let_go()
        assert queued(await second.done()) == ("0", True)
        if key:
            assert queued(await proxy.ask(body, path, **key).done()) == (None, False)


@pytest.mark.anyio
async def test_a_head_that_leaves_early_has_the_position_and_comments_follow_it():
    async with standing(keep_alive_s=0.2) as proxy:
        calls = []
        for waiting in range(3):
            calls.append(proxy.ask(STREAM))
            await proxy.until(1, waiting)
        _, second, third = calls
        await third.until(lambda call: b": queue 2\n" in call.body)
        await second.until(lambda call: b": queue 1\n" in call.body)
        proxy.engine.let_go()
        await proxy.until(1, 1)
        await third.until(lambda call: b": queue 1\n" in call.body)
        proxy.engine.let_go()
        await proxy.until(1, 0)
        proxy.engine.let_go()
        positions = [(await call.done()).headers.get("x-queue-position") for call in calls]
        assert positions == [None, "1", "2"]
        assert third.body.index(b": queue 2\n") < third.body.index(b": queue 1\n")
        assert third.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, BODY), (CHAT, STREAM), (TEXT, PROMPT), (PLAIN, {**BODY})]
)
async def test_a_request_that_does_not_wait_is_refused_at_once(path, body):
    async with standing() as proxy:
        first = proxy.ask(BODY)
        await proxy.until(1, 0)
        refused = await proxy.ask(body, path, **{HEADER: "0"}).done()
        assert code_of(refused) == (429, "queue_full")
        assert float(refused.headers["retry-after-ms"]) > 0
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-should-retry"] == "true"
        proxy.engine.let_go()
        assert (await first.done()).status == 200


@pytest.mark.anyio
async def test_one_with_a_free_row_does_not_need_to_wait():
    async with standing() as proxy:
        asked = proxy.ask(BODY, **{HEADER: "0"})
        await proxy.until(1, 0)
        proxy.engine.let_go()
        assert (await asked.done()).status == 200


@pytest.mark.anyio
async def test_patience_ends_in_queue_full():
    async with standing() as proxy:
        first = proxy.ask(BODY)
        await proxy.until(1, 0)
        assert code_of(await proxy.ask(BODY, **{HEADER: "50"}).done()) == (429, "queue_full")
        assert proxy.numbers() == (1, 0)
        proxy.engine.let_go()
        await first.done()


@pytest.mark.parametrize("path", [CHAT, TEXT, PLAIN])
def test_a_patience_that_is_no_time_is_refused_by_name(serve, path):
    client = serve(engine := ScriptedEngine(deltas("a")))
    for value in ("-1", "soon", "3600001", ""):
        body = PROMPT if path == TEXT else BODY
        refused = client.post(path, json=body, headers={HEADER: value})
        assert (refused.status_code, error_of(refused)["param"]) == (400, HEADER)
    assert not engine.requests


@pytest.mark.anyio
async def test_a_caller_that_returns_when_it_was_told_gets_a_place():
    async with standing(queue_length=1) as proxy:
        first = proxy.ask(BODY)
        await proxy.until(1, 0)
        second = proxy.ask(BODY)
        await proxy.until(1, 1)
        refused = await proxy.ask(BODY).done()
        assert code_of(refused) == (429, "queue_full")
        proxy.engine.let_go()
        await first.done()
        await proxy.until(1, 0)
        proxy.later_s += float(refused.headers["retry-after-ms"]) / 1000
        third = proxy.ask(BODY)
        await proxy.until(1, 1)
        proxy.engine.let_go()
        await proxy.until(1, 0)
        proxy.engine.let_go()
        assert [(await call.done()).status for call in (second, third)] == [200, 200]


@pytest.mark.anyio
async def test_a_client_that_disconnects_while_it_waits_leaves_nothing():
    async with standing() as proxy:
        first = proxy.ask(BODY)
        await proxy.until(1, 0)
        second = proxy.ask(BODY)
        await proxy.until(1, 1)
        await second.disconnect()
        await proxy.until(1, 0)
        proxy.engine.let_go()
        assert (await first.done()).status == 200


@pytest.mark.anyio
async def test_each_choice_of_a_request_needs_a_row():
    async with standing() as proxy:
        asked = proxy.ask({**BODY, "n": 3})
        for waiting in (2, 1, 0):
            await proxy.until(1, waiting)
            await asyncio.sleep(0.01)  # the header has milliseconds
            proxy.engine.let_go()
        assert queued(await asked.done()) == ("0", True)
        assert proxy.numbers() == (0, 0)
