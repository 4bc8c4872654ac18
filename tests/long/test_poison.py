"""A request that kills Triton each time ends with an error, and others are served again.

tests/api/test_resending.py shows the same without Triton, which is started three times here.
"""

from __future__ import annotations

import httpx
import yaml

from tests.fixtures.running import ARTIFACTS, Start, alone, build
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import HANG_S, eventually

MODELS = {"steady": scripted(repeats=True), "poison": scripted(dies_after=0)}


def test_a_request_that_kills_triton_each_time_ends(start: Start):
    folder = ARTIFACTS / "poison"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "models.yaml"
    with alone():
        file.write_text(yaml.safe_dump({"models": MODELS}))
        build(file, folder)
    stack = start("serve", MODELS_FILE=file, ARTIFACTS_DIR=folder)
    stack.wait_ready(within_s=110)

    def complete(model: str) -> httpx.Response:
        body = {"model": model, "prompt": "abc", "max_tokens": 3}
        return httpx.post(f"{stack.url}/v1/completions", json=body, timeout=HANG_S)

    refused = complete("poison")
    assert refused.status_code == 503
    assert "lost 3 times before the first token" in refused.json()["error"]["message"]
    eventually(lambda: complete("steady").status_code == 200, 60, "recovered")
    assert stack.log.read_text().count("tritonserver died") == 3
    stack.stop()
