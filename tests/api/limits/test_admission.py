"""Limits on one request: choices count, products are bounded, and callers take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from proxy.domain.identity import ANYONE, Caller
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.settings import Settings
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.limits import AsCaller, caller

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "demo", "prompt": "hi"}
LONG_CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}] * 70}
AT_LOAD = "forms_of"  # what the sandbox finds out about a chat template, once


LONG = FixedCatalog(facts=replace(FACTS, context_length=100_000))


def one_row() -> FixedCatalog:
    return FixedCatalog(facts=replace(FACTS, rows=1))


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {**BODY, "n": 5}, "n"),
        (TEXT, {**PROMPT, "best_of": 5}, "n"),
        (TEXT, {**PROMPT, "prompt": ["a"] * 5}, "n"),
    ],
)
def test_a_request_for_more_generations_than_a_model_runs_is_a_400(serve, path, body, param):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, one_row(), generations_per_row=4).post(path, json=body)
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert "at most 4" in error_of(response)["message"]
    assert not engine.requests


OF_ALL = "Too many concurrent requests. Please try again later."


@pytest.mark.parametrize(
    ("limit", "code", "message", "outcome"),
    [
        ("generations_per_row", "queue_full", "The model 'demo' runs at most 3", "queue_full"),
        ("max_concurrent_requests", "rate_limit_exceeded", OF_ALL, "server_full"),
    ],
)
def test_generations_over_a_limit_of_the_server_get_429_with_the_time_to_wait(
    serve, limit, code, message, outcome
):
    engine = ScriptedEngine(deltas("a", None), hangs=True)
    client = serve(engine, one_row(), public_metrics=True, **{limit: 3})
    with client.websocket_connect("/v1/chat/completions/ws") as socket:
        socket.send_json({**BODY, "n": 2, "stream": True})
        assert socket.receive_json()["object"] == "chat.completion.chunk"
        refused = client.post(CHAT, json={**BODY, "n": 2})
        page = client.get("/metrics").text
    error = error_of(refused)
    assert (refused.status_code, error["type"], error["code"]) == (429, "rate_limit_error", code)
    assert error["message"].startswith(message)
    is_named = refused.headers.get("x-ratelimit-exceeded") == "server.concurrent_requests"
    assert is_named is (outcome == "server_full")
    assert f'proxy_requests_total{{model="demo",outcome="{outcome}"}} 1.0' in page
    assert float(refused.headers["retry-after-ms"]) > 0
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-should-retry"] == "true"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {**BODY, "logit_bias": {"5": 1, "256": 1}}, "logit_bias"),
        (CHAT, {**BODY, "allowed_token_ids": [256, 5]}, "allowed_token_ids"),
        (CHAT, {**BODY, "stop_token_ids": [256]}, "stop_token_ids"),
        (TEXT, {**PROMPT, "prompt": [5, 256]}, "prompt"),
        (TEXT, {**PROMPT, "prompt": [[5], [256]]}, "prompt"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_refused_before_the_queue(serve, path, body, param):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine).post(path, json={**body, "stream": True})
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert "token 256, which is outside the vocabulary of 256" in error_of(response)["message"]
    assert not engine.requests


def test_a_prompt_of_many_choices_is_rendered_once(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine)
    assert client.post(CHAT, json={**LONG_CHAT, "n": 16}).status_code == 200
    assert len(engine.requests) == 16
    assert client.sandbox.functions == [AT_LOAD, "rendered"]


def test_a_short_chat_is_rendered_without_a_sandbox(serve):
    client = serve(ScriptedEngine(deltas("a")))
    assert client.post(CHAT, json=BODY).status_code == 200
    assert client.sandbox.functions == [AT_LOAD]


@pytest.mark.parametrize("path", ["/chat/json", "/chat/stream", "/chat/sse", "/tokenize"])
def test_messages_are_limited_on_every_path(serve, path):
    client = serve(ScriptedEngine(deltas("a")), LONG)
    body = {"messages": BODY["messages"] * 2049}
    assert error_of(client.post(path, json=body))["param"] == "messages"
    assert client.post(path, json={"messages": BODY["messages"] * 2048}).status_code == 200


def test_tools_are_limited_where_they_are_only_counted(serve):
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"messages": BODY["messages"], "tools": [tool] * 129}
    response = serve(ScriptedEngine()).post("/tokenize", json=body)
    assert (response.status_code, error_of(response)["param"]) == (400, "tools")


def test_a_prompt_times_its_choices_is_limited(serve):
    client = serve(ScriptedEngine(deltas("a")))
    body = {**PROMPT, "prompt": "x" * 1_500_000}
    assert client.post(TEXT, json=body).status_code == 200
    response = client.post(TEXT, json={**body, "n": 11})
    assert (response.status_code, error_of(response)["param"]) == (400, "n")


def test_log_probs_of_an_unstreamed_answer_are_limited_and_a_streams_are_not(serve):
    client = serve(ScriptedEngine(deltas("a")), LONG)
    body = {**BODY, "logprobs": True, "top_logprobs": 4, "max_tokens": 50_001}
    response = client.post(CHAT, json=body)
    assert (response.status_code, error_of(response)["param"]) == (400, "max_tokens")
    assert client.post(CHAT, json={**body, "stream": True}).status_code == 200
    assert client.post(CHAT, json={**body, "max_tokens": 50_000}).status_code == 200


def test_without_max_tokens_the_answer_ends_where_the_log_probs_do(serve):
    engine = ScriptedEngine(deltas("a"))
    serve(engine, LONG).post(CHAT, json={**BODY, "logprobs": True, "top_logprobs": 4})
    assert engine.requests[0].max_tokens == 50_000


def scored(tokens: int, top: int) -> list[TokenDelta]:
    """Tokens with log-probabilities, a delta each."""
    alternatives = tuple(Alternative(b"w%d" % at, -1.0 - at) for at in range(top))
    return [
        TokenDelta(
            (b"w",),
            prompt_tokens=1 if at == 0 else None,
            finish=FinishReason.LENGTH if at == tokens - 1 else None,
            log_probs=(TokenLogProb(-0.5, alternatives),),
        )
        for at in range(tokens)
    ]


def test_held_log_probs_are_limited_over_all_requests(serve):
    client = serve(ScriptedEngine(scored(1_000, 1_000)))  # more than a request can ask for
    body = {**BODY, "logprobs": True, "top_logprobs": 4}
    refused = client.post(CHAT, json=body)
    assert refused.status_code == 429
    assert "stream" in error_of(refused)["message"]
    assert client.post(CHAT, json={**body, "stream": True}).status_code == 200


def test_cached_tokens_can_be_kept_to_the_server(serve):
    def cached(**settings) -> int:
        usage = serve(ScriptedEngine(deltas("a")), **settings).post(CHAT, json=BODY).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 4
    assert cached(report_cached_tokens=False) == 0


def test_callers_can_be_kept_from_sharing_a_prefix_cache(serve):
    def salts(*given: str | None) -> list[str | None]:
        engine = ScriptedEngine(deltas("a"))
        client = serve(engine, isolate_prefix_caches=True)
        for salt in given:
            client.post(CHAT, json={**BODY, "cache_salt": salt})
        return [seen.cache_salt for seen in engine.requests]

    own, named = salts(None, "mine")
    assert own
    assert named == f"{own}mine"
    assert salts(own) != [own], "a caller that names another's salt does not get it"


def salt_of(client, engine: ScriptedEngine, who: Caller, address: str) -> str | None:
    TestClient(AsCaller(client.app, who), client=(address, 1)).post(CHAT, json=BODY)
    return engine.requests[-1].cache_salt


@pytest.mark.parametrize(
    ("settings", "isolates"),
    [
        ({}, False),
        ({"api_key": "k" * 32}, False),  # one identity for all
        ({"key_pepper": "p" * 32}, True),  # a second tenant may be made at any time
        ({"jwt_issuer": "https://issuer.example", "jwt_audience": "us"}, True),
        ({"key_pepper": "p" * 32, "isolate_prefix_caches": False}, False),
        ({"isolate_prefix_caches": True}, True),
    ],
)
def test_tenants_share_no_prefix_cache_unless_the_operator_says_so(settings, isolates):
    assert Settings(**settings).isolates_prefix_caches is isolates


def test_two_tenants_of_a_store_share_no_prefix_cache(serve):
    engine, who = ScriptedEngine(deltas("a")), KeysInMemory()
    who.add_tenant("other")
    client = serve(engine, keys=who, key_pepper=PEPPER)
    salts = set()
    for number, tenant in enumerate(("acme", "other", "acme")):
        key = who.add(f"key{number}", tenant=tenant)
        client.post(CHAT, json=BODY, headers={"authorization": f"Bearer {key}"})
        salts.add(engine.requests[-1].cache_salt)
    assert len(salts) == 2
    assert None not in salts
    page = client.get("/metrics", headers={"authorization": f"Bearer {key}"}).text
    assert "proxy_prefix_caches_isolated 1.0" in page


def test_keys_of_one_tenant_share_a_prefix_cache_from_any_address(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, isolate_prefix_caches=True)
    first = salt_of(client, engine, caller("acme", "one"), "10.0.0.1")
    assert first == salt_of(client, engine, caller("acme", "two"), "10.0.0.2")
    assert first != salt_of(client, engine, caller("other", "one"), "10.0.0.1")


def test_one_key_for_all_keeps_addresses_apart(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, isolate_prefix_caches=True)
    salts = {salt_of(client, engine, ANYONE, f"10.0.0.{last}") for last in (1, 1, 2)}
    assert len(salts) == 2
