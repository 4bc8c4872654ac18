"""Several tritonservers of the scripted runtime, and a proxy before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.fixtures.pool_load import KEY
from tests.fixtures.running import ARTIFACTS, Start, alone, build
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import SECRET, Stack, eventually

STEP_MS = 100.0
MODELS = {
    "steady": scripted(repeats=True, step_ms=STEP_MS, more={"hold_ms": 0}),
    "other": scripted(repeats=True, step_ms=STEP_MS, more={"hold_ms": 0}),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the models of these tests are built."""

    folder: Path

    @property
    def settings(self) -> dict[str, object]:
        return {"MODELS_FILE": self.folder / "models.yaml", "ARTIFACTS_DIR": self.folder}


@pytest.fixture(scope="module")
def place() -> Place:
    folder = ARTIFACTS / "pools"
    with alone():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "models.yaml").write_text(yaml.safe_dump({"models": MODELS}))
        build(folder / "models.yaml", folder)
    return Place(folder)


@pytest.fixture(scope="module")
def triton(start: Start, place: Place) -> Callable[..., Stack]:
    """Starts one more tritonserver; `are_ready` waits for several."""

    def run(*command: str, **settings: object) -> Stack:
        return start(*(command or ("triton",)), **{**place.settings, **settings})

    return run


def are_ready(*tritons: Stack) -> None:
    for one in tritons:
        eventually(lambda one=one: "is ready after" in one.log.read_text(), 60, f"see {one.log}")


def address(one: Stack) -> str:
    return f"127.0.0.1:{one.triton_grpc_port}"


def listed(one: Stack) -> str:
    """As a line of a file that lists endpoints."""
    return f"{address(one)}?metrics={one.triton_metrics_port}"


@pytest.fixture(scope="module")
def proxy_of(start: Start) -> Callable[..., Stack]:
    """Starts a proxy with a key of operators."""

    def run(**settings: object) -> Stack:
        usual = {"API_KEY": KEY, "TRITON_SECRET": SECRET, "MODELS_FILE": None, "MAX_RESENDS": 2}
        proxy = start("proxy", **{**usual, **settings})
        proxy.wait_ready()
        return proxy

    return run
