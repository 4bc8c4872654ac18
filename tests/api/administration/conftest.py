"""The application with a store of keys, and clients with an admin's and a user's key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from proxy.access.store import open_store
from proxy.access.store.store import Store
from proxy.app import Operations
from proxy.settings import Settings
from tests.doubles.engine import ScriptedEngine
from tests.fixtures.application import NONE, application, operations

PEPPER = "a pepper for tests that is long enough".replace(" ", "-")


def operations_of(store: Store) -> Operations:
    """Two endpoints, and no other models; decisions and audit are the store's."""
    kept = {"decisions": store.decisions, "audit": store.audit}
    return operations("10.0.0.1:8001", "10.0.0.2:8001", **kept)


class Proxy:
    """app: the application. admin: sends the first admin key. url: of the store."""

    def __init__(
        self, stack: ExitStack, folder: Path, engine: ScriptedEngine, **settings: object
    ) -> None:
        self.url = f"sqlite:///{folder / 'store.db'}"
        usual = {"models_file": NONE, "key_pepper": PEPPER, "store_url": self.url}
        self.settings = Settings(**usual, **settings)
        self.key = asyncio.run(self._first_key())
        self.store = self.new_store()
        own = operations_of(self.store)
        self.app = application(engine, settings=self.settings, store=self.store, operations=own)
        self.admin = stack.enter_context(TestClient(self.app))
        self.admin.headers["authorization"] = f"Bearer {self.key}"

    def with_key(self, key: str) -> TestClient:
        """Another client of the running application."""
        client = TestClient(self.app)
        client.portal = self.admin.portal
        client.headers["authorization"] = f"Bearer {key}"
        return client

    def client_of(self, app: FastAPI, key: str) -> TestClient:
        """Of another application, which runs in a `with`."""
        client = TestClient(app)
        client.headers["authorization"] = f"Bearer {key}"
        return client

    def new_store(self) -> Store:
        store = open_store(self.settings)
        assert store is not None
        return store

    async def _first_key(self) -> str:
        store = self.new_store()
        await store.prepare()
        made = await store.keys.create_first(lambda made: None)
        await store.close()
        assert made is not None
        return made.key


@pytest.fixture
def engine() -> ScriptedEngine:
    """Of the proxy; a module whose tests need answers has another one."""
    return ScriptedEngine()


@pytest.fixture
def proxy(tmp_path: Path, engine: ScriptedEngine) -> Iterator[Proxy]:
    with ExitStack() as stack:
        yield Proxy(stack, tmp_path, engine)


Made = Callable[..., dict[str, object]]


@pytest.fixture
def made(proxy: Proxy) -> Made:
    """made(tenant=…, **fields) -> a new key of a tenant, which is made where there is none."""

    def make(tenant: str = "acme", **fields: object) -> dict[str, object]:
        proxy.admin.post("/admin/v1/tenants", json={"name": tenant})
        body = {"tenant": tenant, "name": "a key", **fields}
        answer = proxy.admin.post("/admin/v1/keys", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return make
