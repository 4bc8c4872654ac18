"""A normal stop: every Python model ends by itself, and its process dies of nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from proxy.operate.triton_server import binaries, launch
from tests.fixtures.running import ARTIFACTS, Start
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT, triton_log

TRIES = 3
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
    artifacts, found = ARTIFACTS / "stops", binaries.wheel()
    backend = artifacts / launch.copy_backend(artifacts, found) / "python"
    shutil.copy2(found.stub, backend / "real_stub")
    (backend / "real_stub").chmod(0o755)
    stub, status = backend / found.stub.name, found.stub.stat()
    stub.unlink()
    stub.write_text(WRAPPER + "#" * (status.st_size - len(WRAPPER)))
    stub.chmod(0o755)
    os.utime(stub, ns=(status.st_atime_ns, status.st_mtime_ns))
    return backend / "ends"


def ends(start: Start, models_file: Path, noted: Path) -> set[str]:
    """Of a start and a stop: each model's process with its exit status."""
    noted.unlink(missing_ok=True)
    stack = start("serve", MODELS_FILE=models_file, ARTIFACTS_DIR=models_file.parent)
    stack.wait_ready(within_s=240)
    assert stack.stop() == 0
    log = triton_log(models_file.parent).read_text()
    assert "Traceback" not in log
    return set(noted.read_text().splitlines())


def test_every_python_model_is_finalized_at_a_stop_and_its_process_ends_with_0(
    start: Start, wrapped_stub
):
    """tritonserver kills what takes longer than seconds: a busy machine gets three tries."""
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    models = {"demo": {**demo, "weights": str(ROOT / demo["weights"])}, "steady": scripted()}
    models_file = ARTIFACTS / "stops" / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": models}))
    expected = {
        f"model_repository/{model}_{role}/1/model.py 0"
        for model in models
        for role in ("tokenizer", "engine", "detokenizer")
    }
    for _ in range(TRIES):
        found = ends(start, models_file, wrapped_stub)
        assert found <= expected
        if found == expected:
            return
    pytest.fail(f"in {TRIES} tries no stop finalized more than {found}")
