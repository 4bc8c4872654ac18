"""SDKs as people have them, each in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.pip_target import SDKS, installed

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def python_sdk():
    """SDK and major version -> the folder that holds it."""
    return lambda name: installed(HERE / f"{name}.lock")


@pytest.fixture(scope="session")
def javascript_sdk() -> Path:
    """A folder with the programs and node_modules."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not on this machine")
    folder = SDKS / "js"
    shutil.copytree(HERE / "js", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
