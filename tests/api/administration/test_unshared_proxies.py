"""The metric of proxies that share a store and no Redis."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from proxy.app import compose
from tests.doubles.engine import FixedCatalog, ScriptedEngine
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer


@pytest.mark.parametrize(("ledger_url", "shown"), [(None, 2.0), ("redis://127.0.0.1:1", 0.0)])
def test_other_writers_of_the_store_show_only_without_redis(proxy, ledger_url, shown):
    store = proxy.new_store()
    secret = None if ledger_url is None else SecretStr(ledger_url)
    settings = proxy.settings.model_copy(update={"ledger_url": secret, "public_metrics": True})
    app = compose(
        *(settings, ScriptedEngine(), FixedCatalog(), ByteTokenizer(), InProcess()), store=store
    )
    store.usage.others = 2
    client = TestClient(app, headers=dict(proxy.admin.headers))
    assert f"\nproxy_unshared_proxies {shown}\n" in client.get("/metrics").text
