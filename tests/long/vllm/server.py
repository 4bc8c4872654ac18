"""A tritonserver with a real vLLM: the demo model's weights, behind the backend of this folder.

usage: python -m tests.long.vllm.server     with the settings of `triton-openai`, and
    VLLM_PYTHON     the interpreter that has vLLM (see `environment`)
    VLLM_BACKEND    another folder with model.py, such as src/ of NVIDIA's repository
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from google.protobuf import text_format

from proxy.operate.triton_server import binaries, launch
from proxy.settings import Settings
from tests.fixtures import adopted
from tests.fixtures.stack import ROOT

MODEL, EMBEDDER = "qwen_vllm", "embedder"  # in Triton
CONTEXT_LENGTH = 512
ROWS = 16
LORA = "poet"
WEIGHTS = ROOT / "demo_model" / "shipped"
COMMON = {
    "model": str(WEIGHTS),
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": CONTEXT_LENGTH,
    "max_num_seqs": ROWS,
}
ENGINES = {
    MODEL: {**COMMON, "enable_lora": True, "max_lora_rank": 8},
    EMBEDDER: {**COMMON, "runner": "pooling", "convert": "embed"},
}
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # other tests run on the same cores
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def write(artifacts: Path, lora: Path) -> None:
    """Writes the repository and the backend."""
    backend = artifacts / launch.copy_backend(artifacts, binaries.wheel()) / "vllm"
    shutil.rmtree(backend, ignore_errors=True)
    if given := os.environ.get("VLLM_BACKEND"):
        shutil.copytree(given, backend)
    else:
        backend.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("backend.py"), backend / "model.py")
    for name, engine in ENGINES.items():
        config = adopted.config_of(MODEL)
        config.name = name
        config.parameters["REPORT_CUSTOM_METRICS"].string_value = "true"
        folder = artifacts / "model_repository" / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        folder.with_name("config.pbtxt").write_text(text_format.MessageToString(config))
        (folder / "model.json").write_text(json.dumps(engine))
        (folder / "multi_lora.json").write_text(json.dumps({LORA: str(lora)}))


def main() -> None:
    made = launch.embedded(Settings())
    folder = Path(os.environ["VLLM_PYTHON"]).parent
    environment = {**made.environment, **VARIABLES}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    environment.pop("PYTHONPATH", None)
    os.chdir(made.artifacts)
    os.execve(made.arguments[0], made.arguments, environment)


if __name__ == "__main__":
    main()
