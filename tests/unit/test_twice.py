"""What `make test` does with a test that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import twice

FLAKY = """
from pathlib import Path
def test_flaky():
    ran = Path(__file__).with_name("ran")
    ran.touch() if (first := not ran.exists()) else None
    assert not first
"""
SHARED = """
from pathlib import Path
import pytest
ran = Path(__file__).with_name("ran")
was_broken = not ran.exists()
ran.touch()
@pytest.mark.parametrize("number", range(40))
def test_shared(number):
    assert not was_broken
"""
BROKEN = "def test_broken():\n    assert False\n"


def run(folder: Path, text: str, *options: str, paths: Sequence[str] = (".",)) -> tuple[int, str]:
    """In a process of its own, with one test file, and of pytest's plugins xdist alone."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, twice.__file__, *paths, "-q", "-p", "no:cacheprovider", *options]
    few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **few}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_one_that_passes_alone_is_named_and_passes(tmp_path):
    status, printed = run(tmp_path, FLAKY)
    assert status == 0
    assert "[tests] failed beside others, and passed alone: " in printed
    assert "::test_flaky" in printed.splitlines()[-1]


def test_after_several_paths_only_what_failed_runs_once_more(tmp_path):
    (tmp_path / "test_fine.py").write_text("def test_fine():\n    pass\n")
    status, printed = run(tmp_path, FLAKY, paths=("test_fine.py", "test_it.py"))
    assert status == 0
    assert printed.count("1 passed") == 2  # beside the one that failed, and then this one alone
    assert "[tests] failed beside others, and passed alone: test_it.py::test_flaky" in printed


def test_one_that_fails_twice_fails(tmp_path):
    status, printed = run(tmp_path, BROKEN)
    assert status == 1
    assert "[tests] failed twice: " in printed.splitlines()[-1]


def test_failures_in_many_files_are_no_accident(tmp_path):
    for number in range(twice.MOST_FILES):
        (tmp_path / f"test_{number}.py").write_text(BROKEN)
    status, printed = run(tmp_path, FLAKY)
    assert status == 1
    assert "once more" not in printed


def test_many_failures_in_one_file_may_be_one(tmp_path):
    """A server that a pause broke fails all the tests that share it."""
    status, printed = run(tmp_path, SHARED)
    assert status == 0
    assert "40 failed" in printed
    assert "40 passed" in printed


def test_a_file_that_cannot_be_imported_fails_beside_a_test_that_passes_alone(tmp_path):
    (tmp_path / "test_other.py").write_text("import nothing_of_this_name")
    status, printed = run(tmp_path, FLAKY, "-n", "1")
    assert status == 1
    assert "once more" not in printed
