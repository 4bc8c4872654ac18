"""The engine's process names its GPUs before tensorrt_llm is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.stack import HANG_S
from tests.fixtures.trtllm_runtime import PARAMETERS
from trtllm.library import process_environment

ENGINE = Path(__file__).parents[2] / "model_repository" / "engine" / "1"
IMPORTED = """
import json, os
seen = {name: os.environ.get(name) for name in (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TLLM_WORKER_USE_SINGLE_PROCESS",
)}
print(json.dumps(seen))
raise ImportError("that is all")
"""
PROGRAM = """
import json, sys
from pathlib import Path
from trtllm.library import StartFailed
from trtllm.runtime import load
try:
    load(Path("."), json.loads(sys.argv[1]), print)
except StartFailed:
    pass
"""


def seen_at_import(folder: Path, **parameters: str) -> dict[str, str | None]:
    """The variables when the runtime imports tensorrt_llm, in a process of its own."""
    (folder / "tensorrt_llm.py").write_text(IMPORTED)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps({**PARAMETERS, **parameters})],
        env={"PYTHONPATH": f"{ENGINE}:{folder}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    return json.loads(result.stdout)


def test_named_gpus_are_the_only_ones_that_cuda_sees(tmp_path):
    found = seen_at_import(tmp_path, devices="2,3")
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    assert found["TLLM_WORKER_USE_SINGLE_PROCESS"] is None


def test_without_names_cuda_sees_all(tmp_path):
    assert set(seen_at_import(tmp_path).values()) == {None}


@pytest.mark.parametrize(("chosen", "value"), [("true", "1"), ("false", None)])
def test_the_single_process_worker_is_chosen_by_its_variable(chosen, value):
    found = process_environment({**PARAMETERS, "single_process": chosen})
    assert found.get("TLLM_WORKER_USE_SINGLE_PROCESS") == value
