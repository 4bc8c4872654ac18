"""Our ensemble over a real vLLM, and its models file: see the fixtures `ours` and `pair`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from tests.fixtures.running import ARTIFACTS, alone, build
from tests.fixtures.stack import Stack
from tests.long.vllm import adapter
from tests.long.vllm.server import WEIGHTS

FOLDER = ARTIFACTS / "own_vllm"
CONTEXT, ROWS = 2048, 64
VLLM, ONNX = "fast", "twin"
PROMPTS = ["Hello", "The weather in Rome", "What is a proxy?", "1, 2, 3,"]
START_S = 60  # of tritonserver with this engine
HANG_S, SILENCE_S = 25.0, 8.0  # of an engine until it is ended; of a stream until it moves
# Other tests and engines run on the same cores; threads of one engine wait for each other in loops.
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def models_file(interpreter: Path) -> Path:
    """Built into FOLDER."""
    lora = FOLDER / "lora"
    options = {
        "environment": str(interpreter.parents[1]),
        "dtype": "float32",
        "kv_cache_gb": 0.3,
        "max_rows": ROWS,
        "hang_seconds": HANG_S,
        "lora": {"adapters": {"poet": str(lora)}, "max_rank": 8},
        "engine_args": {"enforce_eager": True},
    }
    rule = {"header": {"name": "x-try", "value": "1"}}
    canary = {"name": "new", "model": VLLM, "canary": rule}
    common = {"weights": str(WEIGHTS), "context_length": CONTEXT}
    models = {
        VLLM: {**common, "runtime": "vllm", "vllm": options},
        ONNX: {**common, "onnx": {"precision": "fp32", "threads": 1, "kv_cache_mb": 200}},
        "mixed": {"runtime": "remote", "deployments": [{"name": "old", "model": ONNX}, canary]},
        "brief": {
            "runtime": "remote",
            "deployments": [{"name": "only", "model": VLLM}],
            "limits": {"timeout_s": 1},
        },
    }
    with alone():
        FOLDER.mkdir(parents=True, exist_ok=True)
        maker = Path(adapter.__file__)
        subprocess.run([sys.executable, str(maker), str(lora)], check=True)
        path = FOLDER / "models.yaml"
        path.write_text(yaml.safe_dump({"models": models}))
        build(path, FOLDER)
    return path


@dataclass(frozen=True)
class Pair:
    """Two tritonservers that serve VLLM, and a proxy that has both as one pool."""

    tritons: tuple[Stack, Stack]
    proxy: Stack

    def at(self, address: str) -> Stack:
        return next(one for one in self.tritons if address_of(one) == address)


def address_of(triton: Stack) -> str:
    return f"127.0.0.1:{triton.triton_grpc_port}"


def vllm_processes(stack: Stack) -> list[psutil.Process]:
    found = psutil.Process(stack.process.pid).children(recursive=True)
    return [one for one in found if one.name().startswith("VLLM::")]


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
