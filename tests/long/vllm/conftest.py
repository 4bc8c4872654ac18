"""A real vLLM under tritonserver, and the proxy over it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
import yaml

from tests.fixtures.pool_load import KEY
from tests.fixtures.running import ARTIFACTS, Start
from tests.fixtures.stack import PLAIN, Stack, eventually
from tests.long.vllm import environment, own, server
from tests.long.vllm.adopted_pair import core_of
from tests.long.vllm.own import Pair

FOLDER = ARTIFACTS / "vllm"
GENERATED = "vllm:generation_tokens_total{"
KNOWN = {"adopt": server.MODEL, "context_length": server.CONTEXT_LENGTH}
ENTRIES: dict[str, dict[str, Any]] = {
    "vllm": {**KNOWN, "tokenizer": str(server.WEIGHTS), "adapters": [server.LORA, "ghost"]},
    "embedder": {**KNOWN, "adopt": server.EMBEDDER, "tokenizer": str(server.WEIGHTS)},
    "textual": KNOWN,  # without a tokenizer: vLLM checks prompts itself
}


@dataclass(frozen=True)
class RealVllm:
    """triton: tritonserver alone. proxy: over it."""

    triton: Stack
    proxy: Stack

    def generated(self) -> float:
        """Tokens so far, as vLLM counts them."""
        text = PLAIN.get(f"http://127.0.0.1:{self.triton.triton_metrics_port}/metrics").text
        counts = [line for line in text.splitlines() if line.startswith(GENERATED)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in counts)

    def engine(self) -> psutil.Process:
        """vLLM's own process for the model that generates."""
        return core_of(self.triton)


@pytest.fixture(scope="session")
def interpreter() -> Path:
    try:
        return environment.python()
    except environment.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real(start_shared: Start, interpreter: Path) -> RealVllm:
    lora = FOLDER / "lora"
    maker = Path(server.__file__).with_name("adapter.py")
    subprocess.run([sys.executable, str(maker), str(lora)], check=True)
    server.write(FOLDER, lora)
    triton = start_shared(
        module="tests.long.vllm.server", ARTIFACTS_DIR=FOLDER, VLLM_PYTHON=interpreter
    )
    models = FOLDER / "served.yaml"
    models.write_text(yaml.safe_dump({"models": ENTRIES}))
    proxy = start_shared(
        "proxy",
        ARTIFACTS_DIR=FOLDER,
        MODELS_FILE=models,
        TRITON_URL=f"grpc://127.0.0.1:{triton.triton_grpc_port}",
    )
    eventually(lambda: _is_served(triton, proxy), 120, f"vLLM is served: see {triton.log}")
    return RealVllm(triton, proxy)


def _is_served(triton: Stack, proxy: Stack) -> bool:
    assert triton.process.poll() is None, triton.log.read_text()[-3000:]
    return proxy.is_ready()


@pytest.fixture
def client(real: RealVllm) -> Iterator[openai.OpenAI]:
    url = f"{real.proxy.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def ours(start_shared: Start, interpreter: Path) -> Stack:
    path = own.models_file(interpreter)
    stack = start_shared("serve", MODELS_FILE=path, ARTIFACTS_DIR=own.FOLDER, **own.ENVIRONMENT)
    stack.wait_ready(within_s=own.START_S)
    return stack


@pytest.fixture(scope="session")
def pair(start_shared: Start, ours: Stack) -> Pair:
    """The tritonserver of `ours`, and a second one."""
    second = own.FOLDER / "second"  # each start writes its folder; both have the same build
    for name in (own.VLLM, own.ONNX):
        shutil.rmtree(second / name, ignore_errors=True)
        shutil.copytree(own.FOLDER / name, second / name, symlinks=True)
    file = own.FOLDER / "models.yaml"
    other = start_shared("triton", MODELS_FILE=file, ARTIFACTS_DIR=second, **own.ENVIRONMENT)
    pool = ",".join(f"grpc://{own.address_of(one)}" for one in (ours, other))
    proxy = start_shared(
        "proxy",
        API_KEY=KEY,
        MODELS_FILE=None,
        TRITON_URL=pool,
        CONTINUE_AFTER_SILENCE_S=own.SILENCE_S,
        CONTINUE_WITHIN_S=600,
    )
    eventually(lambda: "tritonserver is ready after" in other.log.read_text(), own.START_S, "ready")
    proxy.wait_ready()
    return Pair((ours, other), proxy)
