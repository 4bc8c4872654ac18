"""Administration with an Idempotency-Key: a change is made once; a new key is not kept."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.doubles.engine import FixedCatalog, ScriptedEngine
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer
from triton_openai.proxy.app import compose

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


@pytest.mark.parametrize("grace_s", [0, 3600])
def test_a_new_api_key_is_not_kept_after_the_grace(proxy, grace_s):
    app = compose(
        proxy.settings.model_copy(update={"resume_grace_s": grace_s}),
        *(ScriptedEngine(), FixedCatalog(), ByteTokenizer(), InProcess()),
        store=proxy.new_store(),
    )
    with TestClient(app, headers=dict(proxy.admin.headers)) as admin:
        admin.post("/admin/v1/tenants", json=TENANT)
        body = {"tenant": "twice", "name": "k", "scopes": ["chat"]}
        first, second = (admin.post("/admin/v1/keys", json=body, headers=KEY) for _ in range(2))
        assert first.status_code == 200, first.text
        assert (first.json() == second.json()) is bool(grace_s)
