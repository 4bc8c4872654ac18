"""OpenAI's SDKs as people have them, each in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.running import ARTIFACTS

HERE = Path(__file__).parent
SDKS = ARTIFACTS / "sdks"


@pytest.fixture(scope="session")
def python_sdk():
    """major version -> the folder that holds it. Kept between runs, made anew for a new lock."""

    def installed(major: int) -> Path:
        lock = HERE / f"openai{major}.lock"
        folder = SDKS / f"openai{major}"
        stamp = folder / lock.name
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            shutil.rmtree(folder, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--target", str(folder), "-r", str(lock)], check=True)
            shutil.copy(lock, stamp)
        return folder

    return installed


@pytest.fixture(scope="session")
def javascript_sdk() -> Path:
    """A folder with the programs and node_modules."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not on this machine")
    folder = SDKS / "js"
    shutil.copytree(HERE / "js", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
