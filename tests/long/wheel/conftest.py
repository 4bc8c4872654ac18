"""The sdist and the wheel of this tree, each built once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.stack import ROOT

LEFT_OUT = (".git", ".venv", "artifacts", "build", "dist", "*.egg-info", ".*_cache", ".hypothesis")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree, because a build writes into its tree."""
    copy = tmp_path_factory.mktemp("tree") / "triton-openai"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return copy


def build(tree: Path, kind: str, target: Path) -> Path:
    """`python -m build`, with the setuptools that is installed. `kind`: sdist or wheel."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", target]
    done = subprocess.run([*command, tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "sdist", tmp_path_factory.mktemp("sdist"))
