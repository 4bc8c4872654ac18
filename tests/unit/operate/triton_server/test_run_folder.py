"""folder: the run folder is made once, and again where the wheel changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.operate.triton_server import run_folder
from proxy.operate.triton_server.binaries import Wheel


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    found = Wheel(site_packages=tmp_path / "site", python="3.11")
    for path in (found.python_backend / "libtriton_python.so", found.stub):
        path.parent.mkdir(parents=True)
        path.write_text("old")
        path.chmod(0o644)
    return found


def test_the_stub_of_this_python_stands_beside_the_backend_and_can_be_run(wheel, tmp_path):
    made = run_folder.prepare(tmp_path / "artifacts", wheel)
    backend = made.artifacts / made.relative_backends / "python"
    assert {p.name for p in backend.iterdir()} == {"libtriton_python.so", wheel.stub.name}
    assert os.access(backend / wheel.stub.name, os.X_OK)


def test_a_second_start_copies_nothing(wheel, tmp_path):
    made = run_folder.prepare(tmp_path, wheel)
    library = made.artifacts / made.relative_backends / "python" / "libtriton_python.so"
    before = library.stat().st_ino
    run_folder.prepare(tmp_path, wheel)
    assert library.stat().st_ino == before


def test_another_wheel_replaces_the_file(wheel, tmp_path):
    made = run_folder.prepare(tmp_path, wheel)
    (wheel.python_backend / "libtriton_python.so").write_text("newer")
    run_folder.prepare(tmp_path, wheel)
    library = made.artifacts / made.relative_backends / "python" / "libtriton_python.so"
    assert library.read_text() == "newer"


def test_the_last_starts_log_is_kept_beside_the_new_one(wheel, tmp_path):
    made = run_folder.prepare(tmp_path, wheel)
    made.path.mkdir(exist_ok=True)
    run_folder.fresh_log(made).write_text("first")
    assert run_folder.fresh_log(made).read_text() == ""
    assert (made.path / "tritonserver.log.1").read_text() == "first"
