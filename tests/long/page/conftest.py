"""The page's server, over a scripted engine, and a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.access.store import open_store
from proxy.domain.endpoints import EndpointStatus
from proxy.settings import Settings
from tests.doubles.pools import DecisionsInMemory, FixedPools, endpoint
from tests.fixtures.application import NONE, application, operations
from tests.fixtures.running_app import RunningApp
from tests.long.page.browser import MISSING, Browser, browser
from tests.long.page.engine import PageCatalog, PageEngine

PEPPER = "a-pepper-for-tests-that-is-long-enough"
Serve = Callable[..., RunningApp]


class KeyedApp(RunningApp):
    """With a store of keys. admin: its first key. database: of the store, a file."""

    def __init__(
        self,
        engine: PageEngine,
        folder: Path,
        *,
        catalog: PageCatalog | None = None,
        models_file: Path = NONE,
        endpoints: Sequence[EndpointStatus] = (endpoint("10.0.0.1:8001"),),
    ) -> None:
        self.engine, self.database = engine, folder / "store.db"
        settings = Settings(
            models_file=models_file, key_pepper=PEPPER, store_url=f"sqlite:///{self.database}"
        )
        self.admin = asyncio.run(self._first_key(settings))
        store = open_store(settings)
        assert store is not None
        own = operations(
            pools=FixedPools(DecisionsInMemory(), *endpoints),
            decisions=store.decisions,
            audit=store.audit,
        )
        ports = {"settings": settings, "store": store, "operations": own}
        super().__init__(application(engine, catalog or PageCatalog(), **ports))

    async def _first_key(self, settings: Settings) -> str:
        store = open_store(settings)
        await store.prepare()
        made = await store.keys.create_first(lambda made: None)
        await store.close()
        return made.key


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING:
        pytest.skip(
            f"not installed: {' '.join(MISSING)} (apt-get install chromium chromium-driver)"
        )
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """At the size of a laptop. To be named after the server, which waits for its clients to leave.

    A test must not leave errors in its console.
    """
    chromium.show(1280, 800)
    yield chromium
    left = chromium.errors()
    chromium.open("about:blank")
    assert left == []


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(**settings) -> a running server without keys, which this machine may administrate."""
    with capture_logs(), ExitStack() as stack:

        def start(engine: PageEngine | None = None, **settings: object) -> RunningApp:
            engine = engine or PageEngine(step_s=0.005)
            given = {"admin": "on", "operations": operations("10.0.0.1:8001"), **settings}
            running = stack.enter_context(RunningApp(application(engine, PageCatalog(), **given)))
            running.engine = engine
            return running

        yield start


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[KeyedApp]:
    with capture_logs(), KeyedApp(PageEngine(step_s=0.005), tmp_path) as running:
        yield running
