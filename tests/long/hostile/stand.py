"""The stack under attack: a model of 20 ms a token, and the demo model on the ONNX engine. A third
name is for the first one in a pool whose list of endpoints is emptied at the start.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.fixtures import embedding_models
from tests.fixtures.scripted import STORY
from tests.fixtures.stack import PLAIN, ROOT, SECRET, Stack, eventually, free_ports

ARTIFACTS = ROOT / "artifacts" / "hostile"
POOLED = ARTIFACTS / "weights" / "pooled"
STEP_MS = 20.0
HELD_S = 5  # requests of the model that is asleep


def models(**onnx: Any) -> dict[str, Any]:
    """onnx: more options of the demo model's engine."""
    weights = str(ROOT / "demo_model" / "shipped")
    script = {"text": STORY, "repeats": True, "step_ms": STEP_MS}
    return {
        "steady": {
            "weights": weights,
            "runtime": "scripted",
            "scripted": script,
            # callers may send templates and values: the attacks on those must get to them
            "chat_template": True,
            "chat_template_kwargs": True,
        },
        "demo": {
            "weights": weights,
            "runtime": "onnx",
            "onnx": {"precision": "fp32", "threads": 1, **onnx},
            "sampling": {"temperature": 0.0},
        },
        "pooled": {"runtime": "embedding", "weights": str(POOLED)},
        "sleeping": {
            "runtime": "remote",
            "deployments": [{"name": "default", "pool": "asleep", "model": "steady"}],
        },
    }


def falls_asleep(stack: Stack, endpoints: Path) -> None:
    """Its requests are held from now on."""
    names = f"{stack.url}/v1/models"
    eventually(lambda: '"sleeping"' in PLAIN.get(names).text, 30, "the model was seen")
    endpoints.write_text("")
    at_zero = 'proxy_fair_queue_capacity{queue="asleep/steady"} 0.0'
    eventually(lambda: at_zero in PLAIN.get(f"{stack.url}/metrics").text, 30, "it is at zero")


@contextlib.contextmanager
def running(*, onnx: Mapping[str, Any] | None = None, **settings: str) -> Iterator[Stack]:
    """Built where that is missing, and stopped at the end. Batches of an earlier one are gone: it
    would go on with them.
    """
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(ARTIFACTS / "files", ignore_errors=True)
    embedding_models.static(POOLED)
    environment, endpoints = free_ports(), ARTIFACTS / "endpoints"
    endpoints.write_text(f"127.0.0.1:{environment['TRITON_GRPC_PORT']}")
    asleep = {"endpoints": f"file+grpc://{endpoints}", "secret_env": "TRITON_SECRET"}
    file = ARTIFACTS / "models.yaml"
    file.write_text(yaml.safe_dump({"models": models(**(onnx or {})), "pools": {"asleep": asleep}}))
    environment |= {
        "TRITON_SECRET": SECRET,
        "HOLD_TIMEOUT_S": str(HELD_S),
        "MODELS_FILE": str(file),
        "ARTIFACTS_DIR": str(ARTIFACTS),
        "PYTHONPATH": str(ROOT),
        "ADMIN": "off",  # as by default; the tests' other stacks are operated without keys
        "MAX_PRIORITY": "0",  # as where there are keys: else a priority rightly stops the bystander
        # the scripted engine starts requests as fast as they come, unlike one with rows: 256 of
        # them at once are all that two cores do, and no token gets through
        "GENERATIONS_PER_ROW": "2",
        **settings,
    }
    stack = Stack(["serve"], environment, ARTIFACTS / "serve.log")
    try:
        stack.wait_ready(within_s=240)
        falls_asleep(stack, endpoints)
        yield stack
    finally:
        with contextlib.suppress(Exception):
            stack.stop()
        if stack.process.poll() is None:
            stack.process.kill()
