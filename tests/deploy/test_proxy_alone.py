"""The proxy's image has no torch, no tokenizer, no ONNX Runtime: it starts without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.fixtures.stack import HANG_S, ROOT, Stack, eventually, free_port


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Callable[[str], Stack]]:
    """proxy(models_file) -> one whose Triton is not there, with the packages of the image only."""
    with ExitStack() as cleanup:

        def start(models_file: str) -> Stack:
            environment = {
                "PORT": str(free_port()),
                "TRITON_URL": f"grpc://127.0.0.1:{free_port()}",
                "TRITON_GRPC_PORT": "1",
                "TRITON_METRICS_PORT": "1",
                "ARTIFACTS_DIR": str(tmp_path),
                "MODELS_FILE": models_file,
            }
            log = tmp_path / "log.txt"
            started = Stack(["proxy"], environment, log, module="tests.fixtures.proxy_image")
            cleanup.callback(started.stop)
            return started

        yield start


def test_a_models_file_that_is_named_and_not_there_ends_the_start(proxy, tmp_path):
    started = proxy(str(tmp_path / "modles.yaml"))
    assert started.process.wait(HANG_S) != 0
    assert "modles.yaml" in started.log.read_text()


def test_it_lives_and_says_that_it_waits_for_triton(proxy):
    started = proxy(str(ROOT / "models.yaml"))

    def lives() -> bool:
        assert started.process.poll() is None, started.log.read_text()
        try:
            return httpx.get(f"{started.url}/health/live").status_code == 200
        except httpx.TransportError:
            return False

    eventually(lives, 30, "alive")
    ready = httpx.get(f"{started.url}/health/ready")
    assert ready.status_code == 503
    assert "reached" in ready.json()["error"]["message"]
    assert started.stop() == 0
