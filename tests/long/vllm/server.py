"""A tritonserver with a real vLLM: the demo model's weights, behind the backend of this folder.

usage: python -m tests.long.vllm.server     with the settings of `triton-openai`, and
    VLLM_PYTHON     the interpreter that has vLLM (see `environment`)
    VLLM_BACKEND    another folder with model.py, such as src/ of NVIDIA's repository
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


# vLLM has moved since NVIDIA's files were written, at 8de0c14.
MOVED = {
    "from vllm.inputs.data import": "from vllm.inputs import",
    ", build_1_2_5_buckets": "\nfrom vllm.v1.metrics.buckets import build_1_2_5_buckets",
}
PLUGIN = "[vllm.stat_logger_plugins]\nprefix_hits = prefix_hits:PrefixHits\n"


def write(artifacts: Path, lora: Path, engines: Mapping[str, Any] = ENGINES) -> None:
    """Writes the repository and the backend. engines: by the names of Triton's models."""
    backend = artifacts / launch.copy_backend(artifacts, binaries.wheel()) / "vllm"
    shutil.rmtree(backend, ignore_errors=True)
    if given := os.environ.get("VLLM_BACKEND"):
        shutil.copytree(given, backend)
        for file in backend.rglob("*.py"):
            text = file.read_text()
            for before, now in MOVED.items():
                text = text.replace(before, now)
            file.write_text(text)
    else:
        backend.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("backend.py"), backend / "model.py")
    shutil.copy(Path(__file__).with_name("prefix_hits.py"), backend)
    plugin = backend / "prefix_hits-0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: prefix-hits\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text(PLUGIN)
    for name, engine in engines.items():
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
