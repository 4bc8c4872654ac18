"""The run folder: the files that tritonserver needs before it can start.

tritonserver runs in `artifacts/` and gets relative paths only, because the Python backend starts
its stubs through an unquoted `bash -c`, which a space in a path would break.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from proxy.operate.triton_server.binaries import Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Paths under `artifacts/`, absolute except for `relative_*`."""

    artifacts: Path
    python: str

    @property
    def path(self) -> Path:
        return self.artifacts / "triton"

    @property
    def log(self) -> Path:
        return self.path / "tritonserver.log"

    def weights(self, triton_model: str) -> Path:
        """The engine folder of a Triton model such as `demo_engine`, or else the model's own."""
        engine = self.artifacts / triton_model.rpartition("_")[0] / "engine"
        return engine.resolve() if engine.exists() else self.artifacts / triton_model

    @property
    def relative_backends(self) -> str:
        """One folder per Python version, so that another interpreter never uses a wrong stub."""
        return f"triton/backends-{self.python}"

    @property
    def relative_models(self) -> str:
        return "model_repository"


def prepare(artifacts: Path, wheel: Wheel) -> RunFolder:
    """Copies the Python backend and its stub from the wheel if they are missing or differ.

    Raises:
        OSError: the disk is full, or the folder is not writable.
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
    """An empty log. The previous start's log is kept as `.1`."""
    if folder.log.exists():
        folder.log.replace(folder.log.with_suffix(".log.1"))
    folder.log.touch()
    return folder.log


def _copy(source: Path, target: Path) -> None:
    """Copies atomically, so that a running server never maps a half-written library."""
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
