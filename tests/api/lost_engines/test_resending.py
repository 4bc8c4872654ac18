"""A request that is sent to Triton again, as its client, the metrics and the log see it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.doubles.engine import ScriptedEngine, deltas

CHAT, SSE = "/v1/chat/completions", "/chat/sse"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
BODY = {**MESSAGES, "model": "demo"}


@pytest.mark.parametrize("n", [1, 3])
def test_a_whole_answer_comes_and_each_choice_is_counted_and_logged(serve, n):
    client = serve(ScriptedEngine(deltas("ab"), lost=n))
    with capture_logs() as lines:
        answer = client.post(CHAT, json={**BODY, "n": n})
    assert [one["message"]["content"] for one in answer.json()["choices"]] == ["ab"] * n
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["resent"], line["finish"]) == (n, "stop")
    assert answer.headers["x-resends"] == str(n)
    assert f'proxy_requests_resent_total{{model="demo"}} {n}.0' in client.get("/metrics").text


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


def test_what_kills_triton_each_time_is_503_that_clients_may_send_again(serve):
    engine = ScriptedEngine(lost=99)
    response = serve(engine, max_resends=1).post(CHAT, json=BODY)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "model_unavailable"
    assert "lost 2 times before the first token" in response.json()["error"]["message"]
    assert response.headers["retry-after"] == "1"
    assert len(engine.requests) == 2
