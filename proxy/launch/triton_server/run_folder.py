"""The run folder: what tritonserver needs on disk before it can start.

It runs with `artifacts/` as its working directory and gets relative paths only, because the
Python backend starts its stubs through an unquoted `bash -c`: a space in a path would break it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from triton_openai.proxy.launch.triton_server.wheel import Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folders and files under `artifacts/`; paths are absolute, except the relative ones."""

    artifacts: Path
    python: str

    @property
    def path(self) -> Path:
        return self.artifacts / "triton"

    @property
    def log(self) -> Path:
        return self.path / "tritonserver.log"

    def weights(self, triton_model: str) -> Path:
        """The folder behind a Triton model such as `demo_engine`; its own where there is none."""
        engine = self.artifacts / triton_model.rpartition("_")[0] / "engine"
        return engine.resolve() if engine.exists() else self.artifacts / triton_model

    @property
    def relative_backends(self) -> str:
        """One folder a Python version: a change of interpreter never meets a foreign stub."""
        return f"triton/backends-{self.python}"

    @property
    def relative_models(self) -> str:
        return "model_repository"


def prepare(artifacts: Path, wheel: Wheel) -> RunFolder:
    """Copies the Python backend and its stub out of the wheel where they are not there yet.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    folder = RunFolder(artifacts=artifacts.resolve(), python=wheel.python)
    backend = folder.artifacts / folder.relative_backends / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in wheel.python_backend.iterdir():
        if source.is_file():
            _copy(source, backend / source.name)
    stub = backend / wheel.stub.name
    _copy(wheel.stub, stub)
    stub.chmod(0o755)
    return folder


def fresh_log(folder: RunFolder) -> Path:
    """An empty log; the last start's is kept beside it as `.1`."""
    if folder.log.exists():
        folder.log.replace(folder.log.with_suffix(".log.1"))
    folder.log.touch()
    return folder.log


def _copy(source: Path, target: Path) -> None:
    """Copies whole or not at all, so a running server never maps a half-written library."""
    if target.exists() and _stamp(target) == _stamp(source):
        return
    half = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copy2(source, half)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
