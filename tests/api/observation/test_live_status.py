"""/metrics/live: a frame a second of what the proxy does, for whom, and when a stream ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from structlog.testing import capture_logs

from proxy.domain.identity import Scope
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application, operations
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import HANG_S

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "a secret"}], "stream": True}
SERIES = {
    "at",
    "requests_per_s",
    "failures_per_s",
    "prompt_tokens_per_s",
    "completion_tokens_per_s",
    "running",
    "waiting",
    "ttft_p50_s",
    "ttft_p99_s",
}
FOR_OPERATORS = {"deployments", "queues", "running"}


class Live(RunningApp):
    """Over an engine that stays in the middle of an answer of three tokens. keys: by scope."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(deltas("abc", finish=None), hangs=True)
        store = KeysInMemory()
        self.keys = {
            scope: store.add(scope.value, scopes=frozenset({scope}))
            for scope in (Scope.ADMIN, Scope.METRICS, Scope.CHAT)
        }
        operated = operations("10.0.0.1:8001")
        super().__init__(
            application(self.engine, keys=store, operations=operated, key_pepper=PEPPER)
        )

    def client(self, scope: Scope) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[scope]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=HANG_S)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with capture_logs(), Live() as running:
        yield running


def events(answer: httpx.Response) -> Iterator[dict]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def frame(live: Live, scope: Scope, wanted: Callable[[dict], object] = bool) -> tuple[dict, dict]:
    """The hello, and the first frame that is wanted."""
    with live.client(scope) as http, http.stream("GET", "/metrics/live") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        read = events(answer)
        hello = next(read)
        return hello, next(each for each in read if wanted(each))


def test_an_operator_sees_running_requests_with_their_stages(live: Live):
    with (
        live.client(Scope.CHAT) as http,
        http.stream("POST", "/v1/chat/completions", json=CHAT) as answer,
    ):
        next(lines := answer.iter_lines())
        hello, found = frame(live, Scope.ADMIN, lambda each: each["totals"]["running"])
        request_id = answer.headers["x-request-id"]
        lines.close()
    assert hello["type"] == "hello"
    assert hello["is_operator"] is True
    assert hello["series"].keys() == SERIES
    assert found["totals"].keys() == SERIES
    assert found.keys() >= FOR_OPERATORS
    (running,) = found["running"]
    assert (running["request_id"], running["model"]) == (request_id, "demo")
    assert (running["tenant"], running["key_id"]) == ("acme", "chat")
    assert running["completion_tokens"] == 3
    assert running["prompt_tokens"] == 7
    assert running["ttft_s"] is not None
    assert "access" in running["stages_ms"]
    (demo,) = found["models"]
    assert (demo["model"], demo["running"]) == ("demo", 1)
    (endpoint,) = found["endpoints"]
    assert (endpoint["address"], endpoint["state"]) == ("10.0.0.1:8001", "ready")
    assert endpoint["tokens_per_s"] >= 0
    shown = {each["name"] for each in hello["columns"]["models"]}
    assert {"model"} | shown == demo.keys()
    assert "a secret" not in json.dumps(found)


def test_tokens_count_as_they_come(live: Live):
    """Not when the request ends: an answer of minutes is no gap and then a peak."""
    with live.client(Scope.METRICS) as http, http.stream("GET", "/metrics/live") as watched:
        read = events(watched)
        before = [next(read) for _ in range(2)][1]
        with (
            live.client(Scope.CHAT) as chat,
            chat.stream("POST", "/v1/chat/completions", json=CHAT) as answer,
        ):
            next(lines := answer.iter_lines())
            found = next(each for each in read if each["totals"]["completion_tokens_per_s"])
            lines.close()
    assert before["totals"]["completion_tokens_per_s"] == 0
    assert 0 < found["totals"]["completion_tokens_per_s"] <= 3.5


def test_the_scope_metrics_sees_what_metrics_have_and_no_more(live: Live):
    hello, found = frame(live, Scope.METRICS)
    assert hello["is_operator"] is False
    assert not FOR_OPERATORS & found.keys()
    assert all(each.keys() == {"pool", "address", "tokens_per_s"} for each in found["endpoints"])
    assert {"models", "tenants", "errors", "is_ready", "loop_lag_p99_s"} <= found.keys()


def test_others_see_nothing(live: Live):
    with live.client(Scope.CHAT) as http:
        refused = http.get("/metrics/live")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
    assert httpx.get(f"{live.url}/metrics/live", timeout=HANG_S).status_code == 401


def test_errors_are_counted_by_code(live: Live):
    with live.client(Scope.CHAT) as http:
        http.post("/v1/chat/completions", json={**CHAT, "model": "none"})
    _, found = frame(live, Scope.METRICS, lambda each: each["errors"])
    assert "model_not_found" in {each["code"] for each in found["errors"]}


def test_a_stream_ends_when_the_proxy_stops(live: Live):
    with live.client(Scope.METRICS) as http, http.stream("GET", "/metrics/live") as answer:
        read = events(answer)
        next(read)
        live.app.state.stopping.set()
        left = list(read)
    live.app.state.stopping.clear()
    assert len(left) <= 2
