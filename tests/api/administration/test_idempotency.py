"""Administration with an Idempotency-Key: a change is made once, and its answer is on no disk."""

from __future__ import annotations

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


def test_a_new_api_key_is_in_memory_only(proxy, tmp_path):
    folder = tmp_path / "kept"
    app = compose(
        proxy.settings.model_copy(update={"idempotency_dir": folder}),
        *(ScriptedEngine(), FixedCatalog(), ByteTokenizer(), InProcess()),
        store=proxy.new_store(),
    )
    with TestClient(app, headers=dict(proxy.admin.headers)) as admin:
        admin.post("/admin/v1/tenants", json=TENANT)
        body = {"tenant": "twice", "name": "k", "scopes": ["chat"]}
        first, second = (admin.post("/admin/v1/keys", json=body, headers=KEY) for _ in range(2))
        assert first.status_code == 200, first.text
        assert first.json()["key"] == second.json()["key"]
    kept = b"".join(file.read_bytes() for file in folder.iterdir())
    assert kept
    assert first.json()["key"].encode() not in kept
