"""/admin/v1 and /v1/usage: what they do, whom they refuse, and that answers are as documented."""

from __future__ import annotations

import csv
import io
import time
from datetime import datetime, timezone

import pytest

from tests.doubles.engine import ScriptedEngine
from tests.fixtures.own_document import OwnDocument
from tests.fixtures.stack import eventually
from tests.unit.access.store.samples import used

TENANTS, KEYS, AUDIT = "/admin/v1/tenants", "/admin/v1/keys", "/admin/v1/audit"


@pytest.fixture
def judged(proxy):
    """judged(method, path, **options) -> the answer, after a look into the document."""
    own = OwnDocument.of(proxy.admin, "administration")

    def send(method: str, path: str, *, documented: str | None = None, **options):
        answer = proxy.admin.request(method, path, **options)
        own.judge(own.document["paths"][documented or path][method.lower()], answer)
        return answer

    return send


def test_a_tenant_from_its_creation_to_its_end(judged):
    one = f"{TENANTS}/{{tenant}}"
    body = {"name": "acme", "limits": {"tokens_per_day": 5}, "of_models": {"demo": {"burst": 2}}}
    created = judged("POST", TENANTS, json=body).json()
    assert {name: created[name] for name in body} == body
    assert created["is_active"] is True
    again = judged("POST", TENANTS, json=body)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "tenant_exists")
    assert judged("GET", f"{TENANTS}/acme", documented=one).json() == created
    changes = {
        "limits": {"tokens_per_day": None, "requests_per_day": 9},
        "of_models": {"demo": None, "llama": {"monthly_budget": 1.5}},
        "is_active": False,
    }
    changed = judged("PATCH", f"{TENANTS}/acme", documented=one, json=changes).json()
    assert changed["limits"] == {"requests_per_day": 9}
    assert changed["of_models"] == {"llama": {"monthly_budget": 1.5}}
    assert changed["is_active"] is False
    none = {"limits": None, "of_models": None}
    changed = judged("PATCH", f"{TENANTS}/acme", documented=one, json=none).json()
    assert (changed["limits"], changed["of_models"]) == ({}, {})
    listed = judged("GET", TENANTS).json()
    assert [each["name"] for each in listed["data"]] == ["acme", "administration"]
    assert judged("DELETE", f"{TENANTS}/acme", documented=one).json() == changed
    gone = judged("GET", f"{TENANTS}/acme", documented=one)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "tenant_not_found")


def test_a_key_from_its_creation_to_its_end(judged, proxy, made):
    one, issued = f"{KEYS}/{{key}}", made(scopes=["models"], limits={"requests_per_second": 3})
    path = f"{KEYS}/{issued['id']}"
    client = proxy.with_key(issued["key"])
    assert client.get("/v1/models").status_code == 200
    shown = judged("GET", path, documented=one).json()
    assert shown == {name: value for name, value in issued.items() if name != "key"}
    changes = {"name": "other", "limits": {"burst": 4}, "models": ["demo"]}
    changed = judged("PATCH", path, documented=one, json=changes).json()
    assert (changed["name"], changed["models"]) == ("other", ["demo"])
    assert changed["limits"] == {"requests_per_second": 3, "burst": 4}
    rotated = judged("POST", f"{path}/rotate", documented=f"{one}/rotate", json={"overlap_s": 60})
    assert rotated.headers["cache-control"] == "no-store"
    assert rotated.json()["overlap_until"] is not None
    assert rotated.json()["key"] != issued["key"]
    revoked = judged("POST", f"{path}/revoke", documented=f"{one}/revoke").json()
    assert revoked["revoked_at"] is not None
    for refused in (
        judged("PATCH", path, documented=one, json={"name": "x"}),
        judged("POST", f"{path}/rotate", documented=f"{one}/rotate", json={}),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "key_revoked")


def eventually_status(client, path: str, status: int) -> float:
    """Seconds until a GET has the status; fails after ten."""
    begun = time.monotonic()
    while client.get(path).status_code != status:
        assert time.monotonic() - begun < 10
        time.sleep(0.05)
    return time.monotonic() - begun


def test_rotation_and_revocation_hold_in_the_running_proxy(proxy, made):
    old = made(scopes=["models"])
    path = f"{KEYS}/{old['id']}"
    new = proxy.admin.post(f"{path}/rotate", json={"overlap_s": 2}).json()
    eventually_status(proxy.with_key(new["key"]), "/v1/models", 200)
    until = datetime.fromisoformat(new["overlap_until"].replace("Z", "+00:00"))
    assert datetime.now(timezone.utc) < until
    assert proxy.with_key(old["key"]).get("/v1/models").status_code == 200
    eventually_status(proxy.with_key(old["key"]), "/v1/models", 401)
    assert datetime.now(timezone.utc) >= until
    proxy.admin.post(f"{path}/revoke")
    assert eventually_status(proxy.with_key(new["key"]), "/v1/models", 401) < 3


def test_pages_have_all_and_each_once(proxy):
    for number in range(5):
        proxy.admin.post(TENANTS, json={"name": f"t{number}"})
    seen, after = [], ""
    while True:
        query = {"limit": 2, **({"after": after} if after else {})}
        page = proxy.admin.get(TENANTS, params=query).json()
        seen += [each["name"] for each in page["data"]]
        if not page["has_more"]:
            break
        after = seen[-1]
    assert seen == ["administration", *(f"t{number}" for number in range(5))]


def test_the_audit_log_names_who_did_what_and_has_no_key(judged, proxy, made):
    key = made()
    found = judged("GET", AUDIT).json()["data"]
    assert [(each["actor"], each["action"]) for each in found] == [
        ("first start", "tenants.create"),
        ("first start", "keys.create"),
        (proxy.key.split("-")[1], "tenants.create"),
        (proxy.key.split("-")[1], "keys.create"),
    ]
    assert found[3]["object"] == f"keys/{key['id']}"
    assert found[3]["before"] is None
    assert found[3]["after"]["name"] == "a key"
    written = proxy.admin.get(AUDIT).text
    for secret in (key["key"], proxy.key):
        assert secret not in written
        assert secret.split("-", 2)[2] not in written
    verified = judged("GET", f"{AUDIT}/verify").json()
    assert (verified["ok"], verified["entries"], verified["problems"]) == (True, 4, [])


def test_the_audit_log_is_read_from_either_end(proxy):
    for number in range(5):
        proxy.admin.post("/admin/v1/tenants", json={"name": f"t{number}"})

    def numbers(**query):
        data, after = [], 0
        while True:
            page = proxy.admin.get(AUDIT, params={"limit": 2, "after": after, **query}).json()
            data += [entry["number"] for entry in page["data"]]
            if not page["has_more"]:
                return data
            after = data[-1]

    oldest_first = numbers()
    assert oldest_first == sorted(oldest_first)
    assert len(oldest_first) >= 5
    assert numbers(order="desc") == oldest_first[::-1]
    assert proxy.admin.get(AUDIT, params={"order": "up"}).status_code == 400


def test_the_audit_log_names_who_read_keys_and_usage(proxy, made):
    key = made()
    for path in (KEYS, f"{KEYS}/{key['id']}", "/admin/v1/usage", f"{KEYS}/none", TENANTS):
        proxy.admin.get(path)

    def read():
        found = proxy.admin.get(AUDIT).json()["data"]
        return [each for each in found if each["action"] == "read"]

    # written about every second
    eventually(lambda: {each["object"] for each in read()} == {"keys", "usage"}, 10, "both entries")
    reads = read()
    assert all(each["after"].keys() == {"times"} for each in reads)
    assert {each["actor"] for each in reads} == {proxy.key.split("-")[1]}


MARCH = {"from": "2026-03-01", "to": "2026-03-31"}


@pytest.fixture
def some_usage(proxy, made):
    """Of two keys; returns the first."""
    key, other = made(), made("beta")
    for of in (key, other):
        row = used(tenant=of["tenant"], key_id=of["id"])
        for _ in range(2):
            proxy.store.usage.add(row)
    proxy.admin.portal.call(proxy.store.usage.flush)
    return key


def test_admins_see_all_usage_as_json_and_csv(judged, proxy, some_usage):
    found = judged("GET", "/admin/v1/usage", params={**MARCH, "by": "tenant"}).json()["data"]
    assert [(each["tenant"], each["requests"]) for each in found] == [("acme", 2), ("beta", 2)]
    assert "day" not in found[0]
    query = {**MARCH, "tenant": "acme", "format": "csv"}
    answer = judged("GET", "/admin/v1/usage", params=query)
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["key"], row["output_tokens"], row["cost"]) == (some_usage["id"], "14", "1.0")


def test_a_key_sees_its_own_usage_only(proxy, some_usage):
    client = proxy.with_key(some_usage["key"])
    (row,) = client.get("/v1/usage", params=MARCH).json()["data"]
    assert (row["day"], row["model"], row["requests"]) == ("2026-03-01", "demo", 2)
    assert "tenant" not in row
    for query in ({"tenant": "beta"}, {"key": "x"}, {"by": "tenant"}):
        assert client.get("/v1/usage", params={**MARCH, **query}).status_code == 400
    assert proxy.admin.get("/v1/usage", params=MARCH).json()["data"] == []


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("/admin/v1/usage", "from=2026-03-02&to=2026-03-01", "from"),
        ("/admin/v1/usage", "from=yesterday", "from"),
        ("/admin/v1/usage", "by=tenant,hour", "by"),
        ("/admin/v1/usage", "tenant=%00", "tenant"),
        ("/admin/v1/usage", "first=2026-03-02", "first"),
        ("/admin/v1/usage", "format=xml", "format"),
        (KEYS, "limit=0", "limit"),
        (KEYS, "limit=1&limit=2", "limit"),
        (KEYS, "colour=red", "colour"),
        (AUDIT, "after=-1", "after"),
    ],
)
def test_a_wrong_query_is_refused_by_name(proxy, path, query, param):
    answer = proxy.admin.get(f"{path}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", TENANTS, {"name": "a/b"}, "name"),
        *(
            ("POST", TENANTS, {"name": name}, "name")
            for name in ("default", "127.0.0.1", "2001:db8::1", "0.0.0.0")
        ),
        *(
            ("POST", TENANTS, {"name": "a", "limits": {limit: 1e-320}}, f"limits.{limit}")
            for limit in ("requests_per_second", "monthly_budget")
        ),
        ("POST", TENANTS, {"name": "a", "color": 1}, "color"),
        ("POST", TENANTS, {"name": "a", "limits": {"burst": 0}}, "limits.burst"),
        *(
            ("POST", TENANTS, {"name": "a", "weight": weight}, "weight")
            for weight in (0, 0.0099, 1000.1, -1, "3", True)
        ),
        *(
            (
                "POST",
                KEYS,
                {"tenant": "administration", "name": "a", "max_priority": wrong},
                "max_priority",
            )
            for wrong in (2**31, -(2**31), 0.5, "1", True)
        ),
        ("PATCH", f"{TENANTS}/administration", {"max_priority": 2**31}, "max_priority"),
        ("PATCH", f"{TENANTS}/administration", {"weight": 0}, "weight"),
        ("POST", KEYS, {"tenant": "administration", "name": "a", "weight": 2}, "weight"),
        ("POST", KEYS, {"tenant": "none", "name": "a"}, "tenant"),
        ("POST", KEYS, {"tenant": "administration", "name": "a\n"}, "name"),
        ("POST", KEYS, {"tenant": "administration", "name": "a", "scopes": ["x"]}, "scopes[0]"),
        ("POST", KEYS, {"tenant": "administration", "name": "a", "scopes": []}, "scopes"),
        (
            "POST",
            KEYS,
            {"tenant": "administration", "name": "a", "expires_at": "2020-01-01T00:00:00Z"},
            "expires_at",
        ),
        (
            "POST",
            KEYS,
            {"tenant": "administration", "name": "a", "expires_at": "2040-01-01T00:00:00"},
            "expires_at",
        ),
    ],
)
def test_a_wrong_body_is_refused_by_name(proxy, method, path, body, param):
    answer = proxy.admin.request(method, path, json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


def test_a_store_that_is_away_is_a_503(proxy, made):
    made()

    async def cut() -> None:
        await proxy.store.close()

    path = proxy.url.removeprefix("sqlite:///")
    proxy.admin.portal.call(cut)
    with open(path, "r+b") as file:
        file.truncate(10)
    answer = proxy.admin.get(KEYS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert "x-should-retry" in answer.headers


def test_without_a_store_there_is_no_administration(serve):
    client = serve(ScriptedEngine(), admin="on")
    assert client.get("/v1/usage").status_code == 404
    assert client.get(KEYS).status_code == 404


TWICE = {"name": "twice"}
ONCE = {"Idempotency-Key": "change-1"}


def test_a_tenant_is_created_once_and_the_retry_gets_the_same_answer(proxy):
    first, second = (
        proxy.admin.post("/admin/v1/tenants", json=TWICE, headers=ONCE) for _ in range(2)
    )
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"
    without = proxy.admin.post("/admin/v1/tenants", json=TWICE)
    assert without.json()["error"]["code"] == "tenant_exists"


@pytest.mark.parametrize("path", ["", "/", "/{id}/rotate", "/{id}/revoke"])
def test_routes_that_return_secrets_take_no_key(proxy, made, path):
    path = "/admin/v1/keys" + path.format(id=made()["id"])
    before = proxy.admin.get("/admin/v1/audit").content
    refused = proxy.admin.post(path, json={"tenant": "acme", "name": "k"}, headers=ONCE)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "Idempotency-Key")
    assert proxy.admin.get("/admin/v1/audit").content == before
