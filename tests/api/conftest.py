"""The whole HTTP side over a scripted engine: no Triton, everything else real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from proxy.app import compose
from proxy.settings import Settings
from tests.doubles.engine import FixedCatalog, ScriptedEngine
from tests.doubles.tokenizer import ByteTokenizer

Serve = Callable[..., TestClient]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """serve(engine, catalog=…, **settings) -> a client of a started app."""
    with ExitStack() as stack:

        def start(engine: ScriptedEngine, catalog=None, **settings) -> TestClient:
            settings = Settings(**{"models_file": tmp_path / "none.yaml", **settings})
            app = compose(settings, engine, catalog or FixedCatalog(), ByteTokenizer())
            return stack.enter_context(TestClient(app))

        yield start
