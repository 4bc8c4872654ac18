"""/admin/v1/requests: the requests that ended last, and the stages of one of them."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.own_document import OwnDocument

REQUESTS, CHAT = "/admin/v1/requests", "/v1/chat/completions"
SECRET = "a very private question"
BODY = {"model": "demo", "messages": [{"role": "user", "content": SECRET}], "user": "someone"}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(deltas("a private answer"))


@pytest.fixture
def key(proxy, made) -> TestClient:
    """A client of the tenant `acme`, which may do anything but use the administration."""
    return proxy.with_key(made("acme")["key"])


@pytest.fixture
def judged(proxy):
    """judged(path, **params) -> the answer's body, after a look into the document."""
    own = OwnDocument.of(proxy.admin, "administration")

    def send(path: str = "", **params: object) -> dict:
        answer = proxy.admin.get(f"{REQUESTS}{path}", params=params)
        documented = f"{REQUESTS}/{{request}}" if path else REQUESTS
        own.judge(own.document["paths"][documented]["get"], answer)
        return answer.json()

    return send


def test_a_request_is_found_by_both_of_its_ids(judged, key):
    answer = key.post(CHAT, json=BODY, headers={"x-request-id": "mine:1"})
    found = judged("/mine:1")
    assert found == judged(f"/{answer.json()['id']}")
    assert (found["model"], found["tenant"], found["status"]) == ("demo", "acme", 200)
    assert found["completion_tokens"] == answer.json()["usage"]["completion_tokens"]
    assert (found["finish"], found["path"]) == ("stop", CHAT)
    assert found["ttft_ms"] <= found["duration_ms"]
    assert isinstance(found["stages"], list)
    text = json.dumps(found)
    assert not any(each in text for each in (SECRET, "a private answer", "someone"))


def test_the_list_is_filtered_and_has_the_newest_first(judged, key, proxy):
    for number in range(3):
        key.post(CHAT, json=BODY, headers={"x-request-id": f"r{number}"})
    key.post(CHAT, json={**BODY, "model": "none"}, headers={"x-request-id": "wrong"})

    def ids(**params: object) -> list[str]:
        return [each["id"] for each in judged(**params)["data"]]

    assert ids() == ["wrong", "r2", "r1", "r0"]
    assert ids(limit=2) == ["wrong", "r2"]
    assert ids(model="demo", failed=False) == ["r2", "r1", "r0"]
    assert ids(failed=True) == ["wrong"]
    assert ids(error="model_not_found") == ["wrong"]
    key_id = judged()["data"][0]["key_id"]
    assert ids(key_id=key_id, limit=1) == ["wrong"]
    for nobody in ({"tenant": "other"}, {"min_ms": 1e9}, {"key_id": "k"}, {"error": "timeout"}):
        assert ids(**nobody) == []
    assert judged()["kept_at_most"] == 1000
    assert "stages" not in judged()["data"][0]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "min_ms=-1",
        "failed=perhaps",
        "model=",
        "error=",
        "page=2",
        "limit=x",
    ],
)
def test_a_wrong_parameter_is_refused_by_name(proxy, query):
    answer = proxy.admin.get(f"{REQUESTS}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_an_unknown_request_is_a_404_that_says_where_else_to_look(judged):
    error = judged("/req_none")["error"]
    assert error["code"] == "request_not_found"
    assert "'req_none'" in error["message"]
    assert "last 1000" in error["message"]


def test_where_anybody_may_do_everything_nobody_sees_others_requests(serve, engine):
    client = serve(engine, auth="off")
    answer = client.get(REQUESTS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")


def test_on_a_machine_of_ones_own_no_key_is_needed(serve, engine):
    client = serve(engine, admin="on")
    client.post(CHAT, json=BODY, headers={"x-request-id": "mine"})
    assert client.get(f"{REQUESTS}/mine").json()["model"] == "demo"
