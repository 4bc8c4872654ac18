"""Idempotency-Key over HTTP: one generation for each key, and the same answer for every reader."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from starlette.testclient import TestClient

from proxy.api.openapi.responses import HEADERS
from proxy.domain.errors import EngineFailed
from proxy.domain.identity import Limits, ModelPatterns
from tests.api.conftest import Serve
from tests.api.formats import error_of
from tests.doubles.engine import ScriptedEngine, deltas, large
from tests.fixtures.application import application
from tests.fixtures.limits import AsCaller, caller

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
STREAM = {**BODY, "stream": True}
KEY = {"Idempotency-Key": "order-17"}


def chat(client: TestClient, body: dict | None = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(CHAT, json=body or BODY, headers={**KEY, **named})


def test_the_same_request_gets_the_same_answer_without_a_second_generation(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    first, second = chat(client), chat(client)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.content == second.content
    assert len(engine.requests) == 1
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["x-original-request-id"] == first.headers["x-request-id"]
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert second.headers["content-length"] == first.headers["content-length"]


def test_a_stream_is_replayed_byte_by_byte_with_numbered_events(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    first, second = chat(client, STREAM), chat(client, STREAM)
    assert first.content == second.content
    assert len(engine.requests) == 1
    events = first.text.split("\n\n")[:-1]
    assert [each.split("\n")[0] for each in events] == [
        f"id: {number}" for number in range(1, len(events) + 1)
    ]
    assert events[-1].endswith("data: [DONE]")


def test_a_stream_without_a_key_has_no_ids(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    assert "id: 1" not in client.post(CHAT, json=STREAM).text


def test_without_the_key_or_with_another_the_request_is_generated_anew(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    chat(client)
    client.post(CHAT, json=BODY)
    chat(client, Idempotency_Key="order-18")
    assert len(engine.requests) == 3


def test_another_body_with_the_same_key_is_a_conflict_that_sdks_do_not_retry(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    chat(client)
    refused = chat(client, {**BODY, "max_tokens": 7})
    assert refused.status_code == 409
    assert error_of(refused)["code"] == "idempotency_conflict"
    assert error_of(refused)["param"] == "Idempotency-Key"
    assert refused.headers["x-should-retry"] == "false"
    assert len(engine.requests) == 1


def test_the_key_is_scoped_to_the_route(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    chat(client)
    plain = client.post("/chat/json", json={"messages": BODY["messages"]}, headers=KEY)
    assert plain.status_code == 200
    assert len(engine.requests) == 2


@pytest.mark.parametrize("key", ['"order-17"', " order-17 "])
def test_a_quoted_key_is_the_same_key(keyed: Serve, key: str):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    chat(client)
    assert chat(client, Idempotency_Key=key).headers["idempotent-replayed"] == "true"
    assert len(engine.requests) == 1


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "a\tb", '"open', '"a"b"'])
def test_a_malformed_key_is_refused_by_name(keyed: Serve, key: str):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    refused = chat(client, Idempotency_Key=key)
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "Idempotency-Key"
    assert not engine.requests


def test_two_different_keys_in_one_request_are_refused(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert client.post(CHAT, json=BODY, headers=headers).status_code == 400


def test_an_error_is_not_kept(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    wrong = {**BODY, "temperature": 99}
    assert [chat(client, wrong).status_code for _ in range(2)] == [400, 400]
    assert "idempotent-replayed" not in chat(client, wrong).headers
    assert chat(client).status_code == 200
    assert len(engine.requests) == 1


def test_a_stream_that_ends_with_an_error_is_not_kept(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc", None), error=EngineFailed("broken")))
    first = chat(client, STREAM)
    assert first.status_code == 200
    assert "broken" in first.text
    engine.error = None
    engine.scripts = [deltas("abc")]
    second = chat(client, STREAM)
    assert "broken" not in second.text
    assert "idempotent-replayed" not in second.headers


def test_with_store_false_nothing_is_kept_after_the_grace(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")), resume_grace_s=0)
    body = {**BODY, "store": False}
    assert chat(client, body).status_code == 200
    chat(client, body)
    assert len(engine.requests) == 2


def test_with_store_false_a_stream_can_be_resumed_within_the_grace(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    body = {**STREAM, "store": False}
    whole = chat(client, body).text
    rest = chat(client, body, Last_Event_ID="2").text
    assert whole.endswith(rest)
    assert rest.startswith("id: 3\n")
    assert len(engine.requests) == 1


def test_where_nothing_is_kept_a_later_request_is_generated(keyed: Serve):
    engine = ScriptedEngine(deltas("abc"))
    client = keyed(engine, idempotency_keep_s=0, resume_grace_s=0)
    chat(client)
    chat(client)
    assert len(engine.requests) == 2


def test_an_answer_beyond_the_bound_is_sent_but_not_kept(keyed: Serve):
    engine = ScriptedEngine(large(2, 4_500_000))
    client = keyed(engine, resume_grace_s=0)
    first = chat(client, {**STREAM, "max_tokens": 100})
    assert first.text.endswith("data: [DONE]\n\n")
    assert len(first.content) > 8_000_000
    chat(client, {**STREAM, "max_tokens": 100})
    assert len(engine.requests) == 2


def test_every_post_takes_a_key(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    body = {"model": "demo", "prompt": "abc"}
    first, second = (client.post("/tokenize", json=body, headers=KEY) for _ in range(2))
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"
    assert client.get("/v1/models", headers=KEY).status_code == 200


def test_records_that_cannot_be_used_are_reported(keyed: Serve):
    broken = {"ledger_url": "redis://127.0.0.1:1"}
    response = chat(keyed(ScriptedEngine(deltas("abc")), **broken))
    assert response.status_code == 200
    assert response.headers["idempotency-unavailable"] == "true"
    closed = keyed(engine := ScriptedEngine(deltas("abc")), ledger_outage="closed", **broken)
    refused = chat(closed)
    assert (refused.status_code, error_of(refused)["code"]) == (503, "idempotency_unavailable")
    assert not engine.requests


def test_what_happened_is_counted(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    chat(client)
    joined = 0  # the answer is kept a moment after it was sent
    while chat(client) and not counted(client, "replayed"):
        joined += 1
    chat(client, STREAM)
    assert counted(client, "joined") == joined
    for outcome in ("generated", "replayed", "idempotency_conflict"):
        assert counted(client, outcome) == 1
    answered = f'{{route="/v1/chat/completions",status="200"}} {joined + 2}.0'
    assert f"proxy_http_responses_total{answered}" in client.get("/metrics").text


def counted(client: TestClient, outcome: str) -> float:
    mark = f'proxy_idempotent_requests_total{{outcome="{outcome}"}} '
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(mark)) for line in lines if line.startswith(mark))


def test_pages_of_other_origins_may_read_the_headers(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")), cors_origins=("https://a.example",))
    shown = chat(client, Origin="https://a.example").headers["access-control-expose-headers"]
    hidden = {"www-authenticate", "allow"}
    assert {*shown.split(", ")} == HEADERS.keys() - hidden


def limited(engine: ScriptedEngine, who) -> AsCaller:
    return AsCaller(application(engine), who)


def test_tenants_do_not_share_keys_and_learn_nothing_of_each_others():
    app = limited(engine := ScriptedEngine(deltas("abc")), caller("a"))
    with TestClient(app) as client:
        chat(client)
        app.caller = caller("b")
        other = chat(client, {**BODY, "max_tokens": 7})
        assert other.status_code == 200
        assert "idempotent-replayed" not in other.headers
        assert len(engine.requests) == 2


SECRET = "the-key-of-everybody-who-calls-it"


@pytest.mark.parametrize(
    ("settings", "front", "is_one"),
    [
        ({"api_key": SECRET}, None, True),
        ({"api_key": SECRET, "host": "0.0.0.0"}, "10.0.0.9", True),
        ({}, None, True),
        ({"host": "localhost"}, None, True),
        ({}, "127.0.0.1", False),
        ({"auth": "off"}, None, False),
        ({"auth": "off", "host": "0.0.0.0"}, None, False),
    ],
)
def test_callers_that_only_an_address_tells_apart_share_no_finished_answer(
    monkeypatch, settings, front, is_one
):
    """Also from one address: a front's, or one that a caller has forged."""
    if front is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", front)
    engine = ScriptedEngine(deltas("abc"))
    app, headers = application(engine, **settings), {"x-api-key": SECRET}
    with TestClient(app, headers=headers) as client:
        other = TestClient(app, headers=headers, client=("10.0.0.7", 1))
        answers = [
            chat(each, body, Idempotency_Key=key)
            for body, key in ((BODY, "a"), (STREAM, "b"))
            for each in (client, client, other)
        ]
        resumed = chat(client, STREAM, Idempotency_Key="b", Last_Event_ID="1").status_code
    assert [each.status_code for each in answers] == [200] * 6
    replayed = ["idempotent-replayed" in each.headers for each in answers]
    assert replayed == [False, is_one, is_one] * 2
    assert (len(engine.requests), resumed) == ((2, 200) if is_one else (6, 410))


def test_two_keys_of_a_tenant_share_answers():
    app = limited(engine := ScriptedEngine(deltas("abc")), caller("a", "one"))
    with TestClient(app) as client:
        chat(client)
        app.caller = caller("a", "two")
        assert chat(client).headers["idempotent-replayed"] == "true"
        assert len(engine.requests) == 1


def test_a_key_that_may_use_other_models_does_not_share_answers():
    app = limited(engine := ScriptedEngine(deltas("abc")), caller("a", "one"))
    with TestClient(app) as client:
        chat(client)
        app.caller = replace(caller("a", "two"), models=ModelPatterns(patterns=("other*",)))
        assert chat(client).status_code == 403
        assert len(engine.requests) == 1


def test_a_replay_counts_as_a_request_but_uses_no_tokens():
    limits = Limits(requests_per_minute=3, tokens_per_minute=1_000)
    app = limited(engine := ScriptedEngine(deltas("abc")), caller(key=limits))
    with TestClient(app) as client:
        answers = [chat(client) for _ in range(4)]
    left = [each.headers["x-ratelimit-remaining-requests"] for each in answers]
    assert left == ["2", "1", "0", "0"]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    tokens = [int(each.headers["x-ratelimit-remaining-tokens"]) for each in answers[:3]]
    assert tokens[1] >= tokens[0]
    assert len(engine.requests) == 1
