"""A tenant with limits asks for answers: what it used is in the store, and what is left holds.

The metric of proxies that share a store and no Redis.
"""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from proxy.domain.identity import LIMIT_FIELDS
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.own_document import OwnDocument

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(deltas("ab"))


def ask(client):
    return client.post("/v1/chat/completions", json=BODY)


def test_what_limits_let_through_is_what_usage_has(proxy, made):
    issued = made(limits={"requests_per_minute": 2})
    client = proxy.with_key(issued["key"])
    first, second, third = ask(client), ask(client), ask(client)
    assert [one.status_code for one in (first, second, third)] == [200, 200, 429]
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert third.headers["x-ratelimit-exceeded"] == "key.requests_per_minute"
    assert third.json()["error"]["code"] == "rate_limit_exceeded"
    proxy.admin.portal.call(proxy.store.usage.flush)
    (row,) = client.get("/v1/usage").json()["data"]
    usage = [one.json()["usage"] for one in (first, second)]
    assert row["requests"] == 2
    assert row["prompt_tokens"] == sum(one["prompt_tokens"] for one in usage)
    assert row["output_tokens"] == sum(one["completion_tokens"] for one in usage)


ALL_LIMITS = {
    "requests_per_second": 0.001,
    "burst": 10,
    "requests_per_minute": 60,
    "requests_per_day": 1000,
    "input_tokens_per_minute": 1000,
    "output_tokens_per_minute": 1000,
    "tokens_per_minute": 1000,
    "input_tokens_per_day": 1000,
    "output_tokens_per_day": 1000,
    "tokens_per_day": 1000,
    "concurrent_requests": 5,
    "concurrent_streams": 5,
    "monthly_tokens": 1000,
    "monthly_budget": 2.5,
}


def test_the_operator_sees_what_is_used_of_every_limit(proxy, made):
    assert list(ALL_LIMITS) == [each.name for each in LIMIT_FIELDS]
    issued = made(limits=ALL_LIMITS)
    changes = {"limits": {"tokens_per_day": 500}, "of_models": {"demo": ALL_LIMITS}}
    proxy.admin.patch("/admin/v1/tenants/acme", json=changes)
    client = proxy.with_key(issued["key"])
    usage = [ask(client).json()["usage"] for _ in range(2)]
    tokens = {
        name: sum(each[f"{field}_tokens"] for each in usage)
        for name, field in (("input", "prompt"), ("output", "completion"), ("total", "total"))
    }
    own = OwnDocument.of(proxy.admin, "administration")

    def limits(**query: str) -> list[dict]:
        answer = proxy.admin.get("/admin/v1/limits", params=query)
        own.judge(own.document["paths"]["/admin/v1/limits"]["get"], answer)
        return answer.json()["data"]

    of_tenant, *of_model = limits(tenant="acme")
    assert (of_tenant["key"], of_tenant["model"]) == (None, None)
    assert (of_tenant["limit"], of_tenant["used"]) == ("tokens_per_day", tokens["total"])
    names = [name for name in ALL_LIMITS if name != "burst"]
    of_key = limits(key=issued["id"])
    for key, model, part in ((issued["id"], None, of_key), (None, "demo", of_model)):
        assert [(each["key"], each["model"], each["limit"]) for each in part] == [
            (key, model, name) for name in names
        ]
        used = {each["limit"]: each["used"] for each in part}
        assert {name: value for name, value in used.items() if name.startswith("req")} == {
            "requests_per_second": 2,
            "requests_per_minute": 2,
            "requests_per_day": 2,
        }
        assert used["input_tokens_per_day"] == tokens["input"]
        assert used["output_tokens_per_minute"] == tokens["output"]
        assert used["monthly_tokens"] == used["tokens_per_minute"] == tokens["total"]
        assert used["concurrent_requests"] == used["concurrent_streams"] == 0
        assert used["monthly_budget"] == 0, "`demo` costs nothing"
        most = {each["limit"]: each["most"] for each in part}
        assert most == {**{name: ALL_LIMITS[name] for name in names}, "requests_per_second": 10}


@pytest.mark.parametrize(
    ("query", "status"),
    [("tenant=nobody", 404), ("key=none", 404), ("", 400), ("tenant=acme&key=k", 400)],
)
def test_limits_are_of_one_tenant_or_one_key(proxy, made, query, status):
    made()
    assert proxy.admin.get(f"/admin/v1/limits?{query}").status_code == status


@pytest.mark.parametrize(
    ("limits", "statuses"),
    [({"requests_per_second": 1e-6}, [200, 429]), ({"monthly_budget": 1e-9}, [200, 200])],
)
def test_the_lowest_limits_hold(proxy, made, limits, statuses):
    client = proxy.with_key(made(limits=limits)["key"])
    assert [ask(client).status_code for _ in statuses] == statuses  # `demo` costs nothing


def test_a_months_tokens_are_remembered_by_the_store(proxy, made):
    """A proxy that starts later begins with what the store has."""
    issued = made()
    client = proxy.with_key(issued["key"])
    spent = sum(ask(client).json()["usage"]["total_tokens"] for _ in range(20))
    proxy.admin.portal.call(proxy.store.usage.flush)
    changes = {"limits": {"monthly_tokens": spent + 3}}
    proxy.admin.patch(f"/admin/v1/keys/{issued['id']}", json=changes)
    later = application(settings=proxy.settings, store=proxy.new_store())
    with proxy.client_of(later, issued["key"]) as client:
        refused = ask(client)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "insufficient_quota"


@pytest.mark.parametrize(("ledger_url", "shown"), [(None, 2.0), ("redis://127.0.0.1:1", 0.0)])
def test_other_writers_of_the_store_show_only_without_redis(proxy, ledger_url, shown):
    store = proxy.new_store()
    secret = None if ledger_url is None else SecretStr(ledger_url)
    settings = proxy.settings.model_copy(update={"ledger_url": secret, "public_metrics": True})
    app = application(settings=settings, store=store)
    store.usage.others = 2
    client = TestClient(app, headers=dict(proxy.admin.headers))
    assert f"\nproxy_unshared_proxies {shown}\n" in client.get("/metrics").text
