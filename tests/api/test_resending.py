"""A request that is sent to Triton again, as its client, the metrics and the log see it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.domain.errors import ModelUnavailable
from tests.doubles.engine import ScriptedEngine, deltas

CHAT, SSE = "/v1/chat/completions", "/chat/sse"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
BODY = {**MESSAGES, "model": "demo"}


def test_a_whole_answer_comes_and_is_counted_and_logged(serve):
    client = serve(ScriptedEngine(deltas("ab"), lost=1))
    with capture_logs() as lines:
        answer = client.post(CHAT, json=BODY)
    assert answer.json()["choices"][0]["message"]["content"] == "ab"
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["resent"], line["finish"]) == (1, "stop")
    assert answer.headers["x-resends"] == "1"
    assert 'proxy_requests_resent_total{model="demo"} 1.0' in client.get("/metrics").text


def test_each_choice_counts(serve):
    client = serve(ScriptedEngine(deltas("ab"), lost=3))
    with capture_logs() as lines:
        answer = client.post(CHAT, json={**BODY, "n": 3})
    assert len(answer.json()["choices"]) == 3
    assert answer.headers["x-resends"] == "3"
    assert [line["resent"] for line in lines if line["event"] == "request"] == [3]


def test_a_request_that_is_not_sent_again_says_nothing_of_it(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    with capture_logs() as lines:
        answer = client.post(CHAT, json=BODY)
    assert "x-resends" not in answer.headers
    assert not any("resent" in line for line in lines)


@pytest.mark.parametrize("path", [CHAT, SSE])
def test_the_head_of_a_stream_says_that_it_was_sent_again(serve, path):
    client = serve(ScriptedEngine(deltas("ab"), lost=1))
    body = {**BODY, "stream": True} if path == CHAT else MESSAGES
    assert client.post(path, json=body).headers["x-resends"] == "1"


@pytest.mark.parametrize("path", [CHAT, SSE])
def test_a_stream_gets_signs_of_life_while_it_waits(serve, path):
    client = serve(ScriptedEngine(deltas("ab"), lost=1), keep_alive_s=0.02)
    body = {**BODY, "stream": True} if path == CHAT else MESSAGES
    first, *parts, done, _ = client.post(path, json=body).text.split("\n\n")
    assert (first, done) == (": keep-alive", "data: [DONE]")
    assert any('"b"' in part for part in parts)


def test_what_kills_triton_each_time_is_503_that_clients_may_send_again(serve):
    engine = ScriptedEngine(lost=99)
    response = serve(engine, max_resends=1).post(CHAT, json=BODY)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "model_unavailable"
    assert "lost 2 times before the first token" in response.json()["error"]["message"]
    assert response.headers["retry-after"] == "1"
    assert len(engine.requests) == 2


def test_an_error_after_signs_of_life_is_an_event(serve):
    error = ModelUnavailable("away")
    client = serve(ScriptedEngine(deltas("a", None), error=error, lost=1), keep_alive_s=0.02)
    *_, last, done, _ = client.post(CHAT, json={**BODY, "stream": True}).text.split("\n\n")
    assert '"code":"model_unavailable"' in last
    assert done == "data: [DONE]"
