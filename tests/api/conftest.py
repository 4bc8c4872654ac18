"""The whole HTTP side over a scripted engine: no Triton, everything else real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from starlette.testclient import TestClient

from proxy.telemetry.logs import processors
from tests.doubles.engine import ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.doubles.sandbox import InProcess
from tests.fixtures.application import application
from tests.fixtures.tool_server import ToolServer, running

Serve = Callable[..., TestClient]
# structlog's default draws tracebacks with rich, for seconds, and names no request
structlog.configure(processors=processors("text"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def serving(folder: Path) -> Iterator[Serve]:
    """folder: where a test may write none.yaml, a models.yaml."""
    with ExitStack() as stack:

        def start(
            engine: ScriptedEngine, catalog=None, sandbox=None, keys=None, **settings
        ) -> TestClient:
            written, sandbox = folder / "none.yaml", sandbox or InProcess()
            if written.exists():
                settings = {"models_file": written, **settings}
            app = application(engine, catalog, sandbox, keys=keys, **settings)
            client = stack.enter_context(TestClient(app))
            client.sandbox = sandbox
            return client

        yield start


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """serve(engine, catalog=…, sandbox=…, keys=…, **settings) -> a client of a started app."""
    with serving(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def idle_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("idle")) as start:
        engine = ScriptedEngine()
        client = start(engine)
        client.engine = engine
        yield client


@pytest.fixture
def idle(idle_app: TestClient) -> Iterator[TestClient]:
    """A client of an app that all tests of a file share, and whose engine must get no request."""
    yield idle_app
    assert not idle_app.engine.requests


@pytest.fixture
def keyed(serve: Serve) -> Serve:
    """As `serve`; the client has an API key that nobody else has."""

    def start(*args, **settings) -> TestClient:
        keys = KeysInMemory()
        client = serve(*args, keys=keys, key_pepper=PEPPER, **settings)
        client.headers["authorization"] = f"Bearer {keys.add('own1')}"
        return client

    return start


CITY = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
Policy = Callable[..., Path]


@pytest.fixture(scope="module")
def shared() -> Iterator[ToolServer]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared: ToolServer) -> ToolServer:
    shared.seen.clear()
    shared.asked.clear()
    shared.left.clear()
    return shared


@pytest.fixture
def policy(tmp_path: Path, server: ToolServer) -> Policy:
    """A models.yaml whose model has the tools `weather` and `slow`."""

    def written(tool: dict[str, Any] | None = None, **model: object) -> Path:
        tools = {
            name: {
                "url": server.url(f"/{name}"),
                "parameters": CITY,
                "allow_private_addresses": True,
                **(tool or {}),
            }
            for name in ("weather", "slow")
        }
        entry = {"weights": "w", "server_tools": tools, **model}
        path = tmp_path / "models.yaml"
        path.write_text(yaml.safe_dump({"models": {"demo": entry}}, sort_keys=False))
        return path

    return written
