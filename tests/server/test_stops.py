"""A normal stop: every Python model ends by itself, and its process dies of nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.fixtures.running import ARTIFACTS, Start
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT
from triton_openai.proxy.launch.triton_server import run_folder, wheel

# In the stub's place; notes the exit status and the model (128 and the signal's number more).
WRAPPER = """#!/bin/bash
here="$(dirname "$0")"
"$here/real_stub" "$@"
status=$?
[ -z "$1" ] || echo "$1 $status" >> "$here/ends"
exit
"""


@pytest.fixture
def wrapped_stub() -> Path:
    """The run folder's stub, in a wrapper of the same size and time, so that the launcher keeps it.

    Returns the file with the ends.
    """
    artifacts, found = ARTIFACTS / "stops", wheel.installed()
    run = run_folder.prepare(artifacts, found)
    backend = artifacts / run.relative_backends / "python"
    (backend / "ends").unlink(missing_ok=True)
    shutil.copy2(found.stub, backend / "real_stub")
    (backend / "real_stub").chmod(0o755)
    stub, status = backend / found.stub.name, found.stub.stat()
    stub.unlink()
    stub.write_text(WRAPPER + "#" * (status.st_size - len(WRAPPER)))
    stub.chmod(0o755)
    os.utime(stub, ns=(status.st_atime_ns, status.st_mtime_ns))
    return backend / "ends"


def test_every_python_model_is_finalized_at_a_stop_and_its_process_ends_with_0(
    start: Start, wrapped_stub
):
    artifacts = ARTIFACTS / "stops"
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    models = {"demo": {**demo, "weights": str(ROOT / demo["weights"])}, "steady": scripted()}
    models_file = artifacts / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": models}))
    stack = start("serve", MODELS_FILE=models_file, ARTIFACTS_DIR=artifacts)
    stack.wait_ready(within_s=240)
    assert stack.stop() == 0
    ends = set(wrapped_stub.read_text().splitlines())
    assert ends == {
        f"model_repository/{model}_{role}/1/model.py 0"
        for model in models
        for role in ("tokenizer", "engine", "detokenizer")
    }
    log = (artifacts / "triton" / "tritonserver.log").read_text()
    assert "Traceback" not in log
