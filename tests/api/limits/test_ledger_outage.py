"""A shared ledger that fails: readiness, metrics, and what callers get."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from pydantic import ValidationError
from starlette.testclient import TestClient

from proxy.cli import explain
from proxy.domain.identity import Limits
from proxy.settings import Settings
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.limits import AsCaller, caller
from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.stack import eventually

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
Away = Callable[[str], TestClient]


def served(url: str, mode: str) -> TestClient:
    """A client that may send three requests a minute to a proxy with its ledger at the URL."""
    app = application(ScriptedEngine(deltas("abc")), ledger_url=url, ledger_outage=mode)
    return TestClient(AsCaller(app, caller(key=Limits(requests_per_minute=3))))


@pytest.fixture
def away() -> Iterator[Away]:
    """A client of a proxy whose Redis has a port that nobody listens on."""
    with ExitStack() as stack, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"redis://:secret-word@127.0.0.1:{bound.getsockname()[1]}/0"
        yield lambda mode: stack.enter_context(served(url, mode))


@pytest.mark.parametrize(
    ("mode", "statuses"),
    [("share", [200] * 3 + [429] * 2), ("open", [200] * 5), ("closed", [503] * 5)],
)
def test_callers_get_what_the_setting_says(away: Away, mode: str, statuses: list[int]):
    client = away(mode)
    responses = [client.post("/v1/chat/completions", json=BODY) for _ in range(5)]
    assert [response.status_code for response in responses] == statuses
    assert "secret-word" not in responses[-1].text
    if mode == "closed":
        assert responses[0].json()["error"]["code"] == "limits_unavailable"
        assert responses[0].headers["retry-after"] == "1"


@pytest.mark.parametrize("mode", ["share", "open"])
def test_the_proxy_stays_ready_and_says_what_is_done(away: Away, mode: str):
    client = away(mode)
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "ledger": mode})
    assert "\nproxy_ledger_up 0.0\n" in client.get("/metrics").text


def test_a_proxy_that_lets_nothing_through_is_not_ready(away: Away):
    client = away("closed")
    assert client.get("/health/ready").status_code == 503
    assert client.get("/health/live").status_code == 200


@needs_redis
def test_a_ledger_that_answers_one_tenant_with_errors_is_a_concern(tmp_path: Path):
    """Redis itself is well: only keys of this tenant hold something else."""
    with running(tmp_path) as server, served(server.url, "closed") as client:
        assert client.post("/v1/chat/completions", json=BODY).status_code == 200
        assert "\nproxy_ledger_up 1.0\n" in client.get("/metrics").text
        with redis.Redis.from_url(server.url) as keys:
            for key in keys.scan_iter("triton-openai:{t}:*requests*"):
                keys.set(key, "something else")
        refused = client.post("/v1/chat/completions", json=BODY)
        assert refused.json()["error"]["code"] == "limits_unavailable"
        client.app.caller = caller("another")
        # The proxy takes Redis for away until its next beat, and then for well.
        eventually(lambda: client.get("/health/ready").status_code == 200, 10, "a beat")
        concerns = ["the limits of some requests could not be checked"]
        assert client.get("/health/ready").json() == {"status": "ready", "concerns": concerns}
        exposition = client.get("/metrics").text
        assert "\nproxy_ledger_up 0.0\n" in exposition
        assert 'proxy_rejections_total{model="demo",reason="limits_unavailable"} 1.0' in exposition


def test_refusals_are_counted_by_limit(away: Away):
    client = away("share")
    for _ in range(5):
        client.post("/v1/chat/completions", json=BODY)
    line = 'proxy_limit_refusals_total{limit="key.requests_per_minute"} 2.0'
    assert line in client.get("/metrics").text


def test_the_url_is_checked_and_not_shown():
    with pytest.raises(ValidationError, match="must begin with one of redis://") as wrong:
        Settings(ledger_url="http://:secret-word@host")
    assert "secret-word" not in (explain(wrong.value) or "")
    settings = Settings(ledger_url="rediss://:secret-word@host/1")
    assert "secret-word" not in repr(settings)
    assert "secret-word" not in settings.model_dump_json()
    assert settings.ledger_url_value == "rediss://:secret-word@host/1"
