"""/admin/v1 of pools: what the routes change, whom they refuse, and that they are documented."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from proxy.domain.errors import StoreUnavailable
from tests.doubles.pools import endpoint
from tests.fixtures.operated_pools import ONE, OTHER, TWO, OperatedPools
from tests.fixtures.own_document import OwnDocument

ENDPOINTS, MODELS, DEPLOYMENTS = (
    *("/admin/v1/endpoints", "/admin/v1/models"),
    "/admin/v1/deployments",
)
QUEUES = "/admin/v1/queues"
ROUTES = [
    ("GET", ENDPOINTS, None),
    ("POST", f"{ENDPOINTS}/drain", {"address": ONE}),
    ("POST", f"{ENDPOINTS}/undrain", {"address": ONE}),
    ("POST", f"{MODELS}/demo/load", {}),
    ("POST", f"{MODELS}/demo/unload", {}),
    ("GET", DEPLOYMENTS, None),
    ("GET", QUEUES, None),
    ("GET", "/admin/v1/log-level", None),
    ("PUT", "/admin/v1/log-level", {"level": "info"}),
    ("PUT", f"{DEPLOYMENTS}/demo/weights", {"weights": {"blue": 1}}),
    ("POST", f"{DEPLOYMENTS}/demo/switch", {"deployment": "green"}),
    ("POST", f"{DEPLOYMENTS}/demo/rollback", {}),
]


@pytest.fixture
def operated() -> OperatedPools:
    return OperatedPools()


@pytest.fixture
def client(operated) -> Iterator[TestClient]:
    with TestClient(operated.app) as client:
        client.headers["authorization"] = f"Bearer {operated.admin}"
        yield client


@pytest.fixture
def judged(client):
    """judged(method, path, **options) -> the answer, after a look into the document."""
    own = OwnDocument.of(client, "pools")

    def send(method: str, path: str, **options):
        answer = client.request(method, path, **options)
        documented = path.replace("/demo/", "/{model}/")
        own.judge(own.document["paths"][documented][method.lower()], answer)
        return answer

    return send


def test_a_drained_endpoint_is_draining_until_its_streams_have_ended(judged, operated):
    listed = judged("GET", ENDPOINTS).json()
    assert [(each["pool"], each["address"], each["state"]) for each in listed["data"]] == [
        ("default", ONE, "ready"),
        ("default", TWO, "ready"),
        ("spare", OTHER, "ready"),
    ]
    (drained,) = judged("POST", f"{ENDPOINTS}/drain", json={"address": ONE}).json()["data"]
    assert (drained["state"], drained["is_drained"], drained["streams"]) == ("draining", True, 2)
    operated.pools.statuses[0] = endpoint(ONE, streams=0)
    again = judged("GET", ENDPOINTS).json()
    assert again["data"][0]["state"] == "drained"
    (back,) = judged("POST", f"{ENDPOINTS}/undrain", json={"address": ONE}).json()["data"]
    assert (back["state"], back["is_drained"]) == ("ready", False)
    assert operated.decisions.calls == [("drain", ONE, "admin"), ("undrain", ONE, "admin")]


def test_a_drained_endpoint_that_is_gone_is_listed_and_can_be_undrained(judged, operated):
    judged("POST", f"{ENDPOINTS}/drain", json={"address": OTHER})
    del operated.pools.statuses[2]
    assert judged("GET", ENDPOINTS).json()["drained_and_gone"] == [OTHER]
    answer = judged("POST", f"{ENDPOINTS}/undrain", json={"address": OTHER})
    assert (answer.status_code, answer.json()["data"]) == (200, [])
    assert operated.decisions.drained == frozenset()


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_an_endpoint_that_no_pool_has_is_a_404(judged, operated, verb):
    answer = judged("POST", f"{ENDPOINTS}/{verb}", json={"address": "10.9.9.9:1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "endpoint_not_found")
    assert operated.decisions.calls == []


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_every_endpoint_loads_and_the_answer_has_a_result_for_each(judged, operated, verb):
    operated.pools.failing = {TWO}
    answer = judged("POST", f"{MODELS}/demo/{verb}", json={}).json()
    assert answer["ok"] is False
    assert [(each["address"], each["error"]) for each in answer["data"]] == [
        (ONE, None),
        (TWO, "out of memory"),
        (OTHER, None),
    ]
    answer = judged("POST", f"{MODELS}/demo/{verb}", json={"pools": ["spare"]}).json()
    assert (answer["ok"], len(answer["data"])) == (True, 1)
    assert operated.pools.calls == [(verb, "demo", ()), (verb, "demo", ("spare",))]
    assert operated.audit.entries == [
        (f"models.{verb}", "models/demo", "admin", {"pools": []}),
        (f"models.{verb}", "models/demo", "admin", {"pools": ["spare"]}),
    ]


def test_a_model_that_no_endpoint_can_load_is_an_error_with_their_reasons(judged, operated):
    operated.pools.failing = {ONE, TWO, OTHER}
    answer = judged("POST", f"{MODELS}/demo/load", json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "endpoints_refused")
    assert error["message"].startswith("No endpoint could load the model 'demo'. ")
    assert f"{TWO}: out of memory" in error["message"]


def test_what_cannot_be_audited_is_not_done(judged, operated):
    operated.audit.fault = StoreUnavailable(detail="away")
    assert judged("POST", f"{MODELS}/demo/load", json={}).status_code == 503
    assert operated.pools.calls == []


def test_a_pool_without_endpoints_is_a_404(judged, operated):
    answer = judged("POST", f"{MODELS}/demo/load", json={"pools": ["spare", "none"]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "pools")
    operated.pools.statuses.clear()
    answer = judged("POST", f"{MODELS}/demo/load", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "endpoint_not_found")


@pytest.mark.parametrize("name", ["%2e%2e", "a%2fb", "a%00", "..%5cx", "y" * 257])
def test_no_folder_of_another_place_can_be_loaded(client, operated, name):
    assert client.post(f"{MODELS}/{name}/load", json={}).status_code in (400, 404)
    assert operated.pools.calls == []


def shares(answer) -> dict[str, float]:
    return {each["name"]: each["share"] for each in answer.json()["data"]}


def test_weights_are_set_switched_and_rolled_back(judged):
    assert [each["model"] for each in judged("GET", DEPLOYMENTS).json()["data"]] == [
        *("demo", "demo", "chat")
    ]
    canary = judged("PUT", f"{DEPLOYMENTS}/demo/weights", json={"weights": {"blue": 9, "green": 1}})
    assert shares(canary) == {"blue": 0.9, "green": 0.1}
    switched = judged("POST", f"{DEPLOYMENTS}/demo/switch", json={"deployment": "green"})
    assert shares(switched) == {"blue": 0.0, "green": 1.0}
    assert [each["configured_weight"] for each in switched.json()["data"]] == [3.0, 1.0]
    judged("POST", f"{DEPLOYMENTS}/demo/switch", json={"deployment": "green"})  # no change
    back = judged("POST", f"{DEPLOYMENTS}/demo/rollback", json={})
    assert shares(back) == {"blue": 0.9, "green": 0.1}
    assert shares(judged("POST", f"{DEPLOYMENTS}/demo/rollback", json={})) == {
        "blue": 0.75,
        "green": 0.25,
    }
    none = judged("POST", f"{DEPLOYMENTS}/demo/rollback", json={})
    assert (none.status_code, none.json()["error"]["code"]) == (409, "no_earlier_weights")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("POST", f"{ENDPOINTS}/drain", {}, 400, "address"),
        ("POST", f"{ENDPOINTS}/drain", {"address": ONE, "wait": True}, 400, "wait"),
        ("POST", f"{ENDPOINTS}/drain", {"address": "a\0"}, 400, "address"),
        ("POST", f"{MODELS}/demo/load", {"pools": "spare"}, 400, "pools"),
        ("PUT", f"{DEPLOYMENTS}/demo/weights", {"weights": {}}, 400, "weights"),
        ("PUT", f"{DEPLOYMENTS}/demo/weights", {"weights": {"blue": 0}}, 400, "weights"),
        ("PUT", f"{DEPLOYMENTS}/demo/weights", {"weights": {"blue": -1}}, 400, "weights.blue"),
        ("PUT", f"{DEPLOYMENTS}/demo/weights", {"weights": {"red": 1}}, 404, "weights"),
        ("PUT", f"{DEPLOYMENTS}/none/weights", {"weights": {"red": 1}}, 404, "model"),
        ("POST", f"{DEPLOYMENTS}/demo/switch", {"deployment": "red"}, 404, "deployment"),
        ("POST", f"{DEPLOYMENTS}/none/rollback", {}, 404, "model"),
        ("POST", f"{DEPLOYMENTS}/demo/rollback", {"to": 3}, 400, "to"),
    ],
)
def test_a_wrong_request_is_refused_by_name_and_changes_nothing(
    client, operated, method, path, body, status, param
):
    answer = client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert operated.decisions.calls == []


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_without_the_scope_nothing_is_shown_or_changed(operated, client, method, path, body):
    for key, status in ((operated.user, 403), ("sk-none", 401)):
        headers = {"authorization": f"Bearer {key}"}
        assert client.request(method, path, json=body, headers=headers).status_code == status
    assert (operated.decisions.calls, operated.pools.calls) == ([], [])


@pytest.mark.parametrize(
    ("method", "path", "body"), [each for each in ROUTES if each[2] is not None]
)
def test_a_web_page_of_another_origin_cannot_send_a_plain_form(
    client, operated, method, path, body
):
    headers = {"origin": "https://evil.example", "content-type": "text/plain"}
    answer = client.request(method, path, content=json.dumps(body), headers=headers)
    assert answer.status_code == 415
    assert (operated.decisions.calls, operated.pools.calls) == ([], [])


def test_queues_are_listed_with_their_largest_tenants_and_their_shares(judged):
    (queue,) = judged("GET", QUEUES).json()["data"]
    assert (queue["queue"], queue["capacity"]) == ("default/demo", 9)
    assert (queue["running"], queue["waiting"], queue["tenants_in_all"]) == (8, 31, 3)
    assert [(one["tenant"], one["share"]) for one in queue["tenants"]] == [
        ("large", 0.75),
        ("small[1]", 0.25),
    ]
