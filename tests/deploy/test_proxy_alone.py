"""The proxy's image has no torch, no tokenizer, no ONNX Runtime: it starts without them."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.fixtures.stack import ROOT, Stack, eventually, free_port


def test_it_lives_and_says_that_it_waits_for_triton(tmp_path: Path):
    environment = {
        "PORT": str(free_port()),
        "TRITON_URL": f"grpc://127.0.0.1:{free_port()}",
        "TRITON_GRPC_PORT": "1",
        "TRITON_METRICS_PORT": "1",
        "ARTIFACTS_DIR": str(tmp_path),
        "MODELS_FILE": str(ROOT / "models.yaml"),
    }
    log = tmp_path / "log.txt"
    started = Stack(["proxy"], environment, log, module="tests.fixtures.proxy_image")

    def lives() -> bool:
        assert started.process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{started.url}/health/live").status_code == 200
        except httpx.TransportError:
            return False

    try:
        eventually(lives, 30, "alive")
        ready = httpx.get(f"{started.url}/health/ready")
        assert ready.status_code == 503
        assert "reached" in ready.json()["error"]["message"]
    finally:
        status = started.stop()
    assert status == 0
