"""What callers see of the fair queue: positions, comments, failing fast, and a true queue_full."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry

from proxy.app import compose
from proxy.domain.engine import EngineRequest
from proxy.scheduling.in_process import InProcessScheduler
from proxy.scheduling.places import QueueLimits
from proxy.settings import Settings
from proxy.telemetry.metrics import QueueMetrics
from tests.api.test_errors import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer
from tests.fixtures.limits import AsCaller, caller
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S

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


class Stand:
    """The proxy over one row, served on a real socket by a loop of its own."""

    def __init__(self, limits: QueueLimits, **settings: object) -> None:
        self.engine = HeldEngine()
        self._limits, self._settings = limits, settings
        self.url = ""
        self.later_s = 0.0  # how far the queue's clock was moved on

    def __enter__(self) -> Stand:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        assert started.wait(HANG_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.scheduler = InProcessScheduler(
            self._limits,
            QueueMetrics(CollectorRegistry()),
            clock=lambda: time.monotonic() + self.later_s,
        )
        self.scheduler.set_capacity(QUEUE, 1)
        settings = Settings(models_file=self._settings.pop("models_file"), **self._settings)
        app = compose(
            *(settings, self.engine, ONE_ROW, ByteTokenizer(), InProcess()),
            scheduler=self.scheduler,
        )
        known = AsCaller(app, caller())
        async with app.router.lifespan_context(app), served(known) as (host, port):
            self.url = f"http://{host}:{port}"
            started.set()
            await self._stop.wait()
            for turn in self.engine.turns:
                turn.set()

    def call(self, function: Callable[[], object]) -> object:
        """In the loop of the proxy."""
        done: list[object] = []
        ready = threading.Event()

        def run() -> None:
            done.append(function())
            ready.set()

        self._loop.call_soon_threadsafe(run)
        assert ready.wait(HANG_S)
        return done[0]

    def numbers(self) -> tuple[int, int]:
        """Streams that run and that wait."""
        (state,) = self.call(self.scheduler.states)
        return state.running, state.waiting

    def until(self, running: int, waiting: int) -> None:
        pause = threading.Event()
        for _ in range(2000):
            if self.numbers() == (running, waiting) and len(self.engine.turns) >= running:
                return
            pause.wait(0.01)
        raise AssertionError(f"{self.numbers()} run and wait")

    def let_go(self) -> None:
        """The oldest stream that is held."""
        self.call(lambda: self.engine.turns.pop(0).set())


@pytest.fixture
def stand(tmp_path) -> Iterator[Callable[..., Stand]]:
    none = tmp_path / "none.yaml"
    none.write_text("models: {another: {weights: w}}")
    stands: list[Stand] = []

    def start(limits: QueueLimits | None = None, **settings: object) -> Stand:
        made = Stand(limits or QueueLimits(), models_file=none, **settings)
        stands.append(made)
        return made.__enter__()

    yield start
    for each in stands:
        each.__exit__()


class Asked:
    """A request in a thread of its own. lines: of its streamed answer."""

    def __init__(self, stand: Stand, body: dict, path: str = CHAT, **headers: str) -> None:
        self.answer: httpx.Response | None = None
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._ask, args=(stand.url + path, body, headers))
        self._thread.start()

    def _ask(self, url: str, body: dict, headers: dict[str, str]) -> None:
        with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
            for line in answer.iter_lines():
                self.lines.append(line)
            self.answer = answer

    def done(self) -> httpx.Response:
        self._thread.join(60)
        assert self.answer is not None
        return self.answer


def queued(answer: httpx.Response) -> tuple[str | None, bool]:
    """The position, and whether the answer says that it waited."""
    waited = answer.headers.get("x-queue-wait")
    return answer.headers.get("x-queue-position"), waited is not None and float(waited) > 0


@pytest.mark.parametrize(("path", "body"), [(CHAT, BODY), (TEXT, PROMPT), (CHAT, STREAM)])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}])
def test_only_an_answer_that_has_waited_says_so(stand, path, body, key):
    proxy = stand()
    first = Asked(proxy, body, path)
    proxy.until(1, 0)
    second = Asked(proxy, body, path, **key)
    proxy.until(1, 1)
    threading.Event().wait(0.01)  # the header has milliseconds
    proxy.let_go()
    assert queued(first.done()) == (None, False)
    proxy.until(1, 0)
    proxy.let_go()
    assert queued(second.done()) == ("0", True)
    if key:
        assert queued(Asked(proxy, body, path, **key).done()) == (None, False)


def test_a_head_that_leaves_early_has_the_position_and_comments_follow_it(stand):
    proxy = stand(keep_alive_s=0.2)
    first = Asked(proxy, STREAM)
    proxy.until(1, 0)
    second = Asked(proxy, STREAM)
    proxy.until(1, 1)
    third = Asked(proxy, STREAM)
    proxy.until(1, 2)
    pause = threading.Event()
    for _ in range(2000):
        if ": queue 2" in third.lines and ": queue 1" in second.lines:
            break
        pause.wait(0.01)
    proxy.let_go()
    proxy.until(1, 1)
    for _ in range(2000):
        if ": queue 1" in third.lines:
            break
        pause.wait(0.01)
    proxy.let_go()
    proxy.until(1, 0)
    proxy.let_go()
    answers = [each.done() for each in (first, second, third)]
    assert [answer.headers.get("x-queue-position") for answer in answers] == [None, "1", "2"]
    comments = [line for line in third.lines if line.startswith(": queue")]
    assert comments.index(": queue 2") < comments.index(": queue 1")
    assert third.lines[-2] == "data: [DONE]"


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, BODY), (CHAT, STREAM), (TEXT, PROMPT), (PLAIN, {**BODY})]
)
def test_a_request_that_does_not_wait_is_refused_at_once(stand, path, body):
    proxy = stand()
    first = Asked(proxy, BODY)
    proxy.until(1, 0)
    refused = httpx.post(proxy.url + path, json=body, headers={HEADER: "0"})
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    assert float(refused.headers["retry-after-ms"]) > 0
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-should-retry"] == "true"
    proxy.let_go()
    assert first.done().status_code == 200


def test_one_with_a_free_row_does_not_need_to_wait(stand):
    proxy = stand()
    asked = Asked(proxy, BODY, **{HEADER: "0"})
    proxy.until(1, 0)
    proxy.let_go()
    assert asked.done().status_code == 200


def test_patience_ends_in_queue_full(stand):
    proxy = stand()
    first = Asked(proxy, BODY)
    proxy.until(1, 0)
    refused = httpx.post(proxy.url + CHAT, json=BODY, headers={HEADER: "50"}, timeout=30)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    assert proxy.numbers() == (1, 0)
    proxy.let_go()
    first.done()


@pytest.mark.parametrize("path", [CHAT, TEXT, PLAIN])
def test_a_patience_that_is_no_time_is_refused_by_name(serve, path):
    client = serve(engine := ScriptedEngine(deltas("a")))
    for value in ("-1", "soon", "3600001", ""):
        body = PROMPT if path == TEXT else BODY
        refused = client.post(path, json=body, headers={HEADER: value})
        assert (refused.status_code, error_of(refused)["param"]) == (400, HEADER)
    assert not engine.requests


def test_a_caller_that_returns_when_it_was_told_gets_a_place(stand):
    proxy = stand(QueueLimits(waiting=1, waiting_per_tenant=1))
    first = Asked(proxy, BODY)
    proxy.until(1, 0)
    second = Asked(proxy, BODY)
    proxy.until(1, 1)
    refused = httpx.post(proxy.url + CHAT, json=BODY)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    proxy.let_go()
    first.done()
    proxy.until(1, 0)
    proxy.later_s += float(refused.headers["retry-after-ms"]) / 1000
    third = Asked(proxy, BODY)
    proxy.until(1, 1)
    proxy.let_go()
    proxy.until(1, 0)
    proxy.let_go()
    assert [each.done().status_code for each in (second, third)] == [200, 200]


def test_a_client_that_disconnects_while_it_waits_leaves_nothing(stand):
    proxy = stand()
    first = Asked(proxy, BODY)
    proxy.until(1, 0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(proxy.url + CHAT, json=BODY, timeout=0.3)
    proxy.until(1, 0)
    proxy.let_go()
    assert first.done().status_code == 200


def test_each_choice_of_a_request_needs_a_row(stand):
    proxy = stand()
    asked = Asked(proxy, {**BODY, "n": 3})
    for waiting in (2, 1, 0):
        proxy.until(1, waiting)
        threading.Event().wait(0.01)  # the header has milliseconds
        proxy.let_go()
    assert queued(asked.done()) == ("0", True)
    assert proxy.numbers() == (0, 0)
