"""Administration with an Idempotency-Key: a change is made once; routes of keys take none."""

from __future__ import annotations

import pytest

KEY = {"Idempotency-Key": "change-1"}
TENANT = {"name": "twice"}


def test_a_tenant_is_created_once_and_the_retry_gets_the_same_answer(proxy):
    first, second = (
        proxy.admin.post("/admin/v1/tenants", json=TENANT, headers=KEY) for _ in range(2)
    )
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"
    without = proxy.admin.post("/admin/v1/tenants", json=TENANT)
    assert without.json()["error"]["code"] == "tenant_exists"


@pytest.mark.parametrize("path", ["", "/", "/{id}/rotate", "/{id}/revoke"])
def test_routes_that_return_secrets_take_no_key(proxy, made, path):
    path = "/admin/v1/keys" + path.format(id=made()["id"])
    before = proxy.admin.get("/admin/v1/audit").content
    refused = proxy.admin.post(path, json={"tenant": "acme", "name": "k"}, headers=KEY)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "Idempotency-Key")
    assert proxy.admin.get("/admin/v1/audit").content == before
