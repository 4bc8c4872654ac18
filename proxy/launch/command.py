"""The command line and the environment of tritonserver: pure, from settings and paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy.launch.folder import RunFolder
from proxy.launch.libpython import LibPython
from proxy.launch.wheel import Wheel

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    grpc: int
    http: int
    metrics: int


def arguments(
    wheel: Wheel,
    folder: RunFolder,
    ports: Ports,
    *,
    host: str,
    shm_prefix: str,
    exit_timeout_s: int,
) -> list[str]:
    """`tritonserver --help` explains each."""
    return [
        str(wheel.tritonserver),
        f"--model-repository={folder.relative_models}",
        "--model-control-mode=none",
        f"--backend-directory={folder.relative_backends}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--exit-timeout-secs={exit_timeout_s}",
        f"--grpc-address={host}",
        f"--grpc-port={ports.grpc}",
        f"--http-address={host}",
        f"--http-port={ports.http}",
        f"--metrics-address={host}",
        f"--metrics-port={ports.metrics}",
        "--allow-gpu-metrics=false",
        "--log-info=false",
        "--log-verbose=0",
    ]


def environment(
    base: Mapping[str, str], wheel: Wheel, libpython: LibPython, *, bin_folder: Path
) -> dict[str, str]:
    """The stub ignores PYTHONPATH: it finds its packages through the first `python3` on PATH."""
    libraries = [wheel.libraries, libpython.folder]
    return {
        **base,
        "LD_LIBRARY_PATH": _joined(*libraries, before=base.get("LD_LIBRARY_PATH")),
        "PATH": _joined(bin_folder, before=base.get("PATH")),
    }


def bin_folder() -> Path:
    """Of the running environment; not resolved, a venv's python is a link out of it."""
    return Path(sys.executable).parent


def _joined(*folders: Path | None, before: str | None) -> str:
    return os.pathsep.join(
        [*(str(folder) for folder in folders if folder), *([before] if before else [])]
    )
