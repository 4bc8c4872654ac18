"""All routes of the administration, and that each needs its scope."""

from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from tests.api.administration.conftest import operations_of
from tests.fixtures.application import application
from tests.fixtures.stack import HANG_S

TENANTS, KEYS, AUDIT = "/admin/v1/tenants", "/admin/v1/keys", "/admin/v1/audit"
ADMIN_ROUTES = [
    ("POST", TENANTS),
    ("GET", TENANTS),
    ("GET", f"{TENANTS}/acme"),
    ("PATCH", f"{TENANTS}/acme"),
    ("DELETE", f"{TENANTS}/acme"),
    ("POST", KEYS),
    ("GET", KEYS),
    ("GET", f"{KEYS}/k"),
    ("PATCH", f"{KEYS}/k"),
    ("POST", f"{KEYS}/k/rotate"),
    ("POST", f"{KEYS}/k/revoke"),
    ("GET", "/admin/v1/usage"),
    ("GET", "/admin/v1/limits"),
    ("GET", AUDIT),
    ("GET", f"{AUDIT}/verify"),
    ("GET", "/admin/v1/endpoints"),
    ("GET", "/admin/v1/queues"),
    ("GET", "/admin/v1/log-level"),
    ("PUT", "/admin/v1/log-level"),
    ("GET", "/admin/v1/requests"),
    ("GET", "/admin/v1/requests/r"),
    ("POST", "/admin/v1/endpoints/drain"),
    ("POST", "/admin/v1/endpoints/undrain"),
    ("GET", "/admin/v1/deployments"),
    ("PUT", "/admin/v1/deployments/m/weights"),
    ("POST", "/admin/v1/deployments/m/switch"),
    ("POST", "/admin/v1/deployments/m/rollback"),
    ("POST", "/admin/v1/models/m/load"),
    ("POST", "/admin/v1/models/m/unload"),
]


def test_these_are_all_routes_of_the_administration(proxy):
    paths = proxy.admin.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}

    def named(part: re.Match[str]) -> str:
        return {"/k": "/{key}", "/m": "/{model}", "/r": "/{request}"}[part[0]]

    ours = {
        (method, re.sub(r"/[kmr](?=/|$)", named, path.replace("/acme", "/{tenant}")))
        for method, path in ADMIN_ROUTES
    }
    assert {each for each in found if each[1].startswith("/admin")} == ours


@pytest.mark.parametrize("given", [{}, {"auth": "off"}, {"auth": "off", "admin": "on"}])
def test_without_keys_a_fuzzer_that_follows_the_document_changes_nothing(proxy, given):
    with TestClient(application(operations=operations_of(proxy.store), **given)) as anyone:
        paths = anyone.get("/openapi.json").json()["paths"]
        described = [path for path in paths if path.startswith("/admin/")]
        assert bool(described) is (given == {})
        for method, path in ADMIN_ROUTES:
            body = {"address": "10.0.0.1:8001"}
            answer = anyone.request(method, path, json=None if method == "GET" else body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                *(403, "insufficient_scope"),
            )
            assert "KEY_PEPPER" in answer.json()["error"]["message"]
        assert anyone.get("/v2/models/demo_engine").status_code == 403
        assert anyone.get("/v2/models/add").status_code == 200
        assert anyone.get("/v1/models").status_code == 200
    assert not proxy.store.decisions.drained


@pytest.mark.parametrize("admin", ["off", "on"])
def test_a_store_whose_keys_are_not_checked_has_no_administration(proxy, admin):
    settings = proxy.settings.model_copy(update={"auth": "off", "admin": admin})
    with TestClient(application(settings=settings, store=proxy.new_store())) as anyone:
        for path in (TENANTS, KEYS, AUDIT):
            assert anyone.get(path).json()["error"]["code"] == "insufficient_scope"


def test_without_keys_the_setting_admin_opens_administration_to_everybody_on_this_machine(proxy):
    with TestClient(application(operations=operations_of(proxy.store), admin="on")) as anyone:
        assert anyone.get("/admin/v1/endpoints").status_code == 200
        assert anyone.get("/v2/models/demo_engine").status_code == 404  # of the double


def test_without_the_scope_nothing_is_allowed_and_the_audit_log_has_one_entry_of_it(proxy, made):
    """With the path of the first call, however many paths were tried."""
    key = made(scopes=["chat", "models"])
    client = proxy.with_key(key["key"])
    for method, path in ADMIN_ROUTES:
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    for number in range(200):
        assert client.get(f"/admin/v1/{number}").status_code == 403
    nobody = proxy.with_key("sk-abcdefghijkl-" + "a" * 43)
    assert nobody.get(KEYS).status_code == 401
    wanted = {(key["id"], " ".join(ADMIN_ROUTES[0])), ("nobody", f"GET {KEYS}")}
    begun, found = time.monotonic(), []
    while not wanted <= set(found):
        assert time.monotonic() - begun < HANG_S, found
        entries = proxy.admin.get(AUDIT, params={"limit": 1000}).json()["data"]
        found = [(each["actor"], each["object"]) for each in entries if each["action"] == "denied"]
    assert len(found) == len(wanted)
    assert proxy.admin.get(f"{AUDIT}/verify").json()["ok"] is True
