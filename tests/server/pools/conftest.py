"""Several tritonservers of the scripted runtime, and a proxy before them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest
import yaml

from tests.fixtures.pool_load import KEY
from tests.fixtures.running import ARTIFACTS, Start
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import SECRET, Stack, eventually

STEP_MS = 100.0
STEADY = scripted(repeats=True, step_ms=STEP_MS, more={"hold_ms": 0})


@pytest.fixture(scope="session")
def place() -> Callable[..., dict[str, object]]:
    """place(model, …): settings of one more tritonserver, of `steady` by default. Each has a folder
    of its own, as each start writes it.
    """
    numbers = count()

    def settings(*models: str) -> dict[str, object]:
        folder = ARTIFACTS / "pools" / str(next(numbers))
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump({"models": dict.fromkeys(models or ("steady",), STEADY)})
        (folder / "models.yaml").write_text(text)
        return {"MODELS_FILE": folder / "models.yaml", "ARTIFACTS_DIR": folder}

    return settings


@pytest.fixture(scope="module")
def new_triton(start: Start, place: Callable[..., dict[str, object]]) -> Callable[[], Stack]:
    """Starts one more tritonserver, and does not wait for it: see `are_ready`."""
    return lambda: start("triton", **place())


@pytest.fixture(scope="session")
def tritons(start_shared: Start, place: Callable[..., dict[str, object]]) -> tuple[Stack, ...]:
    """Three, which all tests of this folder share: one worker runs them all."""
    started = tuple(start_shared("triton", **place()) for _ in range(3))
    are_ready(*started)
    return started


def are_ready(*tritons: Stack) -> None:
    def is_ready(one: Stack) -> bool:
        text = one.log.read_text()
        assert one.process.poll() is None, text[-3000:]
        return "tritonserver is ready after" in text

    for one in tritons:
        eventually(partial(is_ready, one), 60, f"ready: see {one.log}")


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
