"""Limits of tenants, keys and models over HTTP: headers, refusals, and what cannot get around them.

The tests that name an issue are of limits that another gateway's users got around, or found unfair.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from starlette.testclient import TestClient

from proxy.api.http.own_headers import duration
from proxy.api.http.route_scopes import ROUTES
from proxy.domain.identity import Caller, Limits, Scope
from proxy.domain.usage import Spent
from tests.api.formats import named
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.usage import KeptUsage
from tests.fixtures.application import application
from tests.fixtures.limits import AsCaller, caller
from tests.fixtures.own_document import OwnDocument

UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
CHAT = "/v1/chat/completions"
PROMPT = [{"role": "user", "content": "hi"}]
ANSWER = deltas("abc")  # 7 prompt tokens, 4 of them cached; 4 output tokens
Limited = Callable[..., TestClient]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    """limited(caller, engine=…, price=…, **settings) -> a client; its `usage` has all rows."""
    with ExitStack() as stack:

        def start(who: Caller, engine=None, price=None, spent=None, **settings) -> TestClient:
            entry = {"weights": "w", "aliases": ["gpt"], **({"price": price} if price else {})}
            path = tmp_path / "models.yaml"
            path.write_text(yaml.safe_dump({"models": {"demo": entry}}))
            usage = KeptUsage(spent)
            engine = engine or ScriptedEngine(ANSWER)
            app = application(engine, usage=usage, models_file=path, **settings)
            client = stack.enter_context(TestClient(AsCaller(app, who)))
            client.usage = usage
            return client

        yield start


def chat(client: TestClient, **fields) -> httpx.Response:
    body = {"model": "demo", "messages": PROMPT, "max_tokens": 8, **fields}
    return client.post(CHAT, json=body)


def error(response: httpx.Response) -> dict[str, str]:
    return response.json()["error"]


def test_a_response_says_where_the_caller_stands(limited: Limited):
    limits = Limits(requests_per_minute=5, tokens_per_minute=1_000)
    response = chat(limited(caller(key=limits)))
    headers = response.headers
    assert response.status_code == 200
    assert (
        headers["x-ratelimit-limit-requests"] == headers["x-ratelimit-limit"].split(",")[0] == "5"
    )
    assert headers["x-ratelimit-remaining-requests"] == "4"
    assert re.fullmatch(r"1m0(\.\d+)?s", headers["x-ratelimit-reset-requests"])
    assert headers["x-ratelimit-limit-tokens"] == "1000"
    assert 900 < int(headers["x-ratelimit-remaining-tokens"]) < 1_000
    assert int(headers["x-ratelimit-reset"]) in (60, 61)


def test_streams_errors_and_other_routes_have_the_headers_too(limited: Limited):
    client = limited(caller(key=Limits(requests_per_minute=5)))
    stream = chat(client, stream=True)
    assert stream.headers["x-ratelimit-remaining-requests"] == "4"
    assert chat(client, max_tokens="x").headers["x-ratelimit-remaining-requests"] == "4"
    assert client.get("/docs").headers["x-ratelimit-remaining-requests"] == "4"


def test_the_document_has_each_header_of_a_limited_callers_answers(limited: Limited):
    limits = Limits(requests_per_minute=1, tokens_per_minute=1000, monthly_tokens=1000)
    client = limited(caller(key=limits))
    own = OwnDocument(client.get("/openapi.json").json())
    operation, seen = own.document["paths"]["/v1/chat/completions"]["post"], set()
    for status in (200, 429):
        answer = chat(client)
        assert answer.status_code == status
        own.judge(operation, answer)
        for name in answer.headers.keys() & own.document["components"]["headers"].keys():
            schema = own.document["components"]["headers"][name]["schema"]
            value = answer.headers[name]
            own.schema(schema).validate(value if schema["type"] == "string" else json.loads(value))
            seen.add(name)
    assert len([name for name in seen if "ratelimit" in name]) == 11


def test_a_caller_without_limits_gets_none_of_the_headers(limited: Limited):
    response = chat(limited(caller()))
    assert not [name for name in response.headers if "ratelimit" in name]


def test_one_request_too_many_is_refused_with_the_limit_and_the_true_wait(limited: Limited):
    client = limited(caller(of_tenant=Limits(requests_per_minute=2)))
    assert [chat(client).status_code for _ in range(3)] == [200, 200, 429]
    refused = chat(client)
    assert error(refused)["code"] == "rate_limit_exceeded"
    assert error(refused)["type"] == "rate_limit_error"
    assert "requests_per_minute of your organization is 2" in error(refused)["message"]
    assert refused.headers["x-ratelimit-exceeded"] == "tenant.requests_per_minute"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    wait_ms = int(refused.headers["retry-after-ms"])
    assert 55_000 < wait_ms <= 60_469
    assert int(refused.headers["retry-after"]) == math.ceil(wait_ms / 1000)
    assert refused.headers["x-should-retry"] == "true"


ROOM = {"requests_per_day": 50, "tokens_per_day": 10_000}


@pytest.mark.parametrize(
    ("limits", "exceeded", "ours", "reset_s"),
    [
        ({"requests_per_second": 0.5}, "requests_per_second", {"requests": "1", "": "1"}, 2),
        ({"requests_per_minute": 1}, "requests_per_minute", {"requests": "1", "": "1"}, 61),
        ({"tokens_per_minute": 30}, "tokens_per_minute", {"tokens": "30", "": "30"}, 61),
        ({"output_tokens_per_day": 9}, "output_tokens_per_day", {"tokens": "9", "": "9"}, 87_075),
        ({"monthly_tokens": 30}, "monthly_tokens", {"tokens": "30", "": "30"}, 2_678_400),
        ({"monthly_budget": 0.00001}, "monthly_budget", {}, None),
    ],
)
def test_a_429_has_the_headers_of_the_limit_that_refused(
    limited: Limited, limits, exceeded, ours, reset_s
):
    client = limited(caller(key=Limits(**ROOM, **limits)), price={"input": 1, "output": 1})
    answers = [chat(client) for _ in range(3)]
    refused = answers[-1]
    assert (refused.status_code, refused.headers["x-ratelimit-exceeded"]) == (
        429,
        f"key.{exceeded}",
    )
    found = {
        name.removeprefix("x-ratelimit-limit").strip("-"): value
        for name, value in refused.headers.items()
        if name.startswith("x-ratelimit-limit")
    }
    assert found == {"requests": "50", "tokens": "10000", **ours}
    if reset_s is None:
        assert "x-ratelimit-reset" not in refused.headers
    else:
        assert 0 < int(refused.headers["x-ratelimit-reset"]) <= reset_s
        assert int(refused.headers["x-ratelimit-remaining"]) < 20


def test_a_wait_over_two_minutes_is_not_to_be_waited_for(limited: Limited):
    client = limited(caller(key=Limits(requests_per_day=1)))
    chat(client)
    refused = chat(client)
    assert int(refused.headers["retry-after"]) > 120
    assert refused.headers["x-should-retry"] == "false"


def test_who_waits_exactly_as_long_as_told_is_admitted(limited: Limited):
    """With the real clock."""
    import time

    client = limited(caller(key=Limits(requests_per_second=4)))
    assert chat(client).status_code == 200
    refused = chat(client)
    assert refused.status_code == 429
    time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
    assert chat(client).status_code == 200


def test_a_month_s_budget_ends_with_insufficient_quota(limited: Limited):
    """7 prompt tokens, of which 4 are cached, and 4 of output cost 3 * 10 + 4 * 1 + 4 * 100."""
    price = {"input": 10, "cached_input": 1, "output": 100}
    client = limited(caller(key=Limits(monthly_budget=0.0020)), price=price)
    assert chat(client).status_code == 200
    assert client.usage.rows[0].cost == pytest.approx(434e-6)
    second = chat(client)
    assert second.status_code == 200
    third = chat(client)
    left = float(third.headers["x-ratelimit-remaining-budget"])
    assert third.status_code == 429 or left < 0.0020 - 2 * 434e-6
    while (last := chat(client)).status_code == 200:
        pass
    assert error(last)["code"] == "insufficient_quota"
    assert last.headers["x-should-retry"] == "false"
    assert sum(row.cost for row in client.usage.rows) <= 0.0020


def test_what_was_spent_before_the_start_counts(limited: Limited):
    client = limited(caller(key=Limits(monthly_tokens=100)), spent=Spent(tokens=95))
    assert error(chat(client))["code"] == "insufficient_quota"
    assert [asked[:3] for asked in client.usage.asked] == [("t", "k", None)]


def test_a_request_larger_than_the_limit_is_told_so(limited: Limited):
    refused = chat(limited(caller(key=Limits(output_tokens_per_minute=50))), max_tokens=51)
    assert error(refused)["code"] == "request_exceeds_limit"
    assert "output_tokens_per_minute of your key is 50" in error(refused)["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers


def test_a_limit_of_one_model_counts_its_aliases_too(limited: Limited):
    who = caller(of_models={"demo": Limits(requests_per_minute=1), "other": Limits()})
    client = limited(who)
    assert [chat(client, model=name).status_code for name in ("gpt", "demo")] == [200, 429]


def test_requests_that_fail_are_given_back(limited: Limited):
    engine = ScriptedEngine((), error=RuntimeError("broken"))
    client = limited(caller(key=Limits(requests_per_minute=2, tokens_per_minute=200)), engine)
    client = TestClient(client.app, raise_server_exceptions=False)
    assert {chat(client).status_code for _ in range(5)} == {500}
    assert chat(client).headers["x-ratelimit-remaining-requests"] == "2"


# the seven


def test_a_limit_on_concurrency_does_not_bypass_that_on_tokens(limited: Limited):
    """litellm 18730."""
    limits = Limits(concurrent_requests=10, tokens_per_minute=40)
    client = limited(caller(key=limits))
    statuses = [chat(client).status_code for _ in range(4)]
    assert statuses[-1] == 429
    assert sum(row.prompt_tokens + row.output_tokens for row in client.usage.rows) <= 40


def test_the_first_request_without_max_tokens_is_admitted_under_a_small_limit(limited: Limited):
    """litellm PR 28805: 1,024 tokens were reserved, whatever the limit."""
    engine = ScriptedEngine(ANSWER)
    client = limited(caller(key=Limits(tokens_per_minute=100)), engine)
    assert chat(client, max_tokens=None).status_code == 200
    assert engine.requests[0].token_cap == 25  # so that no more can come than was reserved


def test_refused_reservations_leak_nothing(limited: Limited):
    """litellm PR 27001."""
    limits = Limits(requests_per_minute=100, output_tokens_per_minute=50, concurrent_requests=1)
    client = limited(caller(key=limits))
    assert {chat(client, max_tokens=60).status_code for _ in range(99)} == {429}
    response = chat(client)
    assert response.status_code == 200
    assert response.headers["x-ratelimit-remaining-requests"] == "99"


def test_two_names_of_max_tokens_do_not_cheat(limited: Limited):
    """litellm PR 34223: `max_tokens: 1` was reserved, and `max_completion_tokens` generated."""
    engine = ScriptedEngine(ANSWER)
    client = limited(caller(key=Limits(output_tokens_per_minute=50)), engine)
    assert chat(client, max_tokens=1, max_completion_tokens=60).status_code == 400
    assert chat(client, max_tokens=None, max_completion_tokens=60).status_code == 429
    assert not engine.requests


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": PROMPT, "max_tokens": 60}),
        (CHAT, {"messages": PROMPT, "max_tokens": 60, "stream": True}),
        (CHAT, {"messages": PROMPT, "max_tokens": 20, "n": 3}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 60}),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 20}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 20, "best_of": 3}),
    ],
)
def test_every_route_reserves_what_it_may_generate(limited: Limited, path: str, body: dict):
    """litellm 34728: /v1/responses reserved one token."""
    engine = ScriptedEngine(ANSWER)
    client = limited(caller(key=Limits(output_tokens_per_minute=50)), engine)
    refused = client.post(path, json={"model": "demo", **body})
    assert refused.status_code == 429, refused.text
    assert not engine.requests


def test_a_protocol_without_max_tokens_is_capped(limited: Limited):
    engine = ScriptedEngine(ANSWER)
    client = limited(caller(key=Limits(output_tokens_per_minute=50)), engine)
    assert client.post("/chat/json", json={"messages": PROMPT}).status_code == 200
    assert engine.requests[0].token_cap == 12


def test_the_websocket_reserves_too(limited: Limited):
    engine = ScriptedEngine(ANSWER)
    client = limited(caller(key=Limits(output_tokens_per_minute=50)), engine)
    with client.websocket_connect(f"{CHAT}/ws") as socket:
        socket.send_json({"model": "demo", "messages": PROMPT, "max_tokens": 60})
        assert socket.receive_json()["error"]["code"] == "request_exceeds_limit"
    assert not engine.requests


# requests that generate nothing

COUNTED: list[tuple[str, str, dict | None]] = [
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/demo", None),
    ("GET", "/dynamo/alpha/list-models", None),
    ("POST", "/tokenize", {"prompt": "hi"}),
    ("POST", "/detokenize", {"tokens": [104]}),
    ("POST", f"{CHAT}/render", {"model": "demo", "messages": PROMPT}),
    ("POST", "/v1/messages/count_tokens", {"model": "demo", "messages": PROMPT}),
    ("POST", "/v1/responses/input_tokens", {"model": "demo", "input": "hi"}),
]


@pytest.mark.parametrize(("method", "path", "body"), COUNTED)
def test_a_request_that_generates_nothing_counts_as_a_request(
    limited: Limited, method: str, path: str, body: dict | None
):
    client = limited(caller(key=Limits(requests_per_minute=1, tokens_per_minute=100)))
    first = client.request(method, path, json=body)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    assert first.headers["x-ratelimit-remaining-tokens"] == "100"
    refused = client.request(method, path, json=body)
    assert (refused.status_code, error(refused)["type"]) == (429, "rate_limit_error")
    assert refused.headers["x-ratelimit-exceeded"] == "key.requests_per_minute"
    assert int(refused.headers["retry-after-ms"]) > 0
    assert chat(client).status_code == 429


def test_every_route_with_these_scopes_is_in_the_test_above():
    scopes = {Scope.TOKENS, Scope.MODELS}
    routes = {
        path.replace("{model:path}", "demo")
        for path, route in ROUTES.items()
        if route.need in scopes
    }
    assert routes == {path for _, path, _ in COUNTED}


def test_a_refused_request_does_not_count(limited: Limited):
    client = limited(caller(key=Limits(requests_per_minute=1)))
    assert client.post("/tokenize", json={"prompt": 7}).status_code == 400
    assert client.get("/v1/models/unknown").status_code == 404
    assert client.put("/tokenize").status_code == 405
    assert client.post("/tokenize", json={"prompt": "hi"}).status_code == 200


def test_a_refusal_after_a_large_body_was_converted_counts(limited: Limited):
    client = limited(caller(key=Limits(requests_per_minute=1)))
    uses = [{"type": "tool_use", "id": f"c{at}", "name": "f", "input": {}} for at in range(500)]
    asked = {"role": "assistant", "content": uses}
    body = {
        "model": "demo",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}, asked],
    }
    body["messages"][1] = {**asked, "content": uses[:1]}
    assert client.post("/v1/messages", json=body).status_code == 400  # a small one
    body["messages"][1] = asked
    assert client.post("/v1/messages", json=body).status_code == 400
    assert chat(client).status_code == 429


def test_the_place_of_a_request_is_free_when_it_has_ended(limited: Limited):
    client = limited(caller(key=Limits(concurrent_requests=1)))
    assert [client.get("/v1/models").status_code for _ in range(3)] == [200] * 3


def test_an_empty_budget_lets_models_be_listed(limited: Limited):
    client = limited(caller(key=Limits(monthly_tokens=100)), spent=Spent(tokens=100))
    assert chat(client).status_code == 429
    assert client.get("/v1/models").status_code == 200


# what is used


def test_all_choices_count_and_the_prompt_once(limited: Limited):
    client = limited(caller(key=Limits(tokens_per_minute=1_000)))
    chat(client, n=3)
    row = client.usage.rows[0]
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (7, 4, 12)
    assert _tokens_left(client) == 1_000 - 19


def test_cached_tokens_have_a_weight_of_their_own(limited: Limited):
    client = limited(caller(key=Limits(tokens_per_minute=1_000)), cached_token_weight=0.25)
    chat(client)
    assert _tokens_left(client) == 1_000 - (3 + 1 + 4)


def test_a_caller_may_not_see_cached_tokens_but_they_count(limited: Limited):
    client = limited(caller(), report_cached_tokens=False)
    assert chat(client).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert client.usage.rows[0].cached_tokens == 4


def test_attempts_count_each_of_them(limited: Limited):
    """The answer never has the right form, so that all three attempts are used."""
    engine = ScriptedEngine(deltas("[1, 1]"))
    client = limited(caller(key=Limits(tokens_per_minute=10_000)), engine)
    chat(client, **named(UNIQUE, strict=True))
    row = client.usage.rows[0]
    assert len(engine.requests) == 3
    assert (row.errors, row.output_tokens, row.prompt_tokens) == (1, 21, 21)
    assert _tokens_left(client) == 10_000 - 42


def test_a_later_attempt_beyond_the_limit_is_refused(limited: Limited):
    engine = ScriptedEngine(deltas("[1, 1]"))
    client = limited(caller(key=Limits(output_tokens_per_minute=20)), engine)
    assert chat(client, **named(UNIQUE, strict=True)).status_code == 429
    assert len(engine.requests) == 2


def _tokens_left(client: TestClient) -> int:
    """Without using any."""
    return int(client.get("/v1/usage").headers["x-ratelimit-remaining-tokens"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0121, "13ms"), (1, "1s"), (8.64, "8.64s"), (360, "6m0s"), (3723.5, "1h2m3.5s")],
)
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": "é" * 900_000, "documents": ["a"] * 2_048}),
        ("/v1/score", {"text_1": "é" * 900_000, "text_2": ["a"] * 2_048}),
        ("/v1/score", {"queries": ["é" * 900_000], "documents": ["a"] * 2_048}),
        ("/v1/embeddings", {"input": ["a"] * 2_047 + [""]}),
        ("/v1/messages", {"messages": PROMPT, "max_tokens": 1, "tools": [{"name": "f"}] * 12_000}),
        (CHAT, {"messages": PROMPT * 9_000}),
        ("/tokenize", {"messages": PROMPT * 9_000}),
    ],
)
def test_a_refusal_that_took_the_sandbox_counts(limited: Limited, path, body):
    client = limited(caller(key=Limits(requests_per_minute=2)))
    content = json.dumps({"model": "demo", **body}, ensure_ascii=False).encode()
    headers = {"content-type": "application/json"}
    answers = [client.post(path, content=content, headers=headers) for _ in range(4)]
    assert [answers[at].status_code for at in (0, 1, 3)] == [400, 400, 429]
    assert [each.headers["x-ratelimit-remaining-requests"] for each in answers[:2]] == ["1", "0"]
