"""The command line and the environment of tritonserver: pure, from settings and paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.launch import ranks
from proxy.launch.folder import RunFolder
from proxy.launch.ranks import World
from proxy.launch.wheel import Wheel

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    grpc: int
    http: int
    metrics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a server listens. `shm_prefix`: of its Python models' shared memory."""

    host: str
    ports: Ports
    shm_prefix: str


def embedded(wheel: Wheel, folder: RunFolder, place: Place, *, exit_timeout_s: int) -> list[str]:
    """The wheel's server, which has no GPU to watch."""
    tritonserver = [
        str(wheel.tritonserver),
        f"--backend-directory={folder.relative_backends}",
        *_options(folder, place, exit_timeout_s),
        "--allow-gpu-metrics=false",
    ]
    return ranks.command(tritonserver, World(), shm_prefix=place.shm_prefix)


def installed(
    tritonserver: Path, folder: RunFolder, place: Place, world: World, *, exit_timeout_s: int
) -> list[str]:
    """A container's server, a process a rank.

    Raises:
        LaunchError: mpirun is needed and not there.
    """
    start = [str(tritonserver), *_options(folder, place, exit_timeout_s)]
    return ranks.command(start, world, shm_prefix=place.shm_prefix)


def _options(folder: RunFolder, place: Place, exit_timeout_s: int) -> list[str]:
    """`tritonserver --help` explains each."""
    return [
        f"--model-repository={folder.relative_models}",
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--exit-timeout-secs={exit_timeout_s}",
        f"--grpc-address={place.host}",
        f"--grpc-port={place.ports.grpc}",
        f"--http-address={place.host}",
        f"--http-port={place.ports.http}",
        f"--metrics-address={place.host}",
        f"--metrics-port={place.ports.metrics}",
        "--log-info=false",
        "--log-verbose=0",
    ]


def environment(
    base: Mapping[str, str], *, bin_folder: Path, libraries: Sequence[Path | None] = ()
) -> dict[str, str]:
    """The stub ignores PYTHONPATH: it finds its packages through the first `python3` on PATH."""
    found = {**base, "PATH": _joined(bin_folder, before=base.get("PATH"))}
    if libraries:
        found["LD_LIBRARY_PATH"] = _joined(*libraries, before=base.get("LD_LIBRARY_PATH"))
    return found


def bin_folder() -> Path:
    """Of the running environment; not resolved, a venv's python is a link out of it."""
    return Path(sys.executable).parent


def _joined(*folders: Path | None, before: str | None) -> str:
    return os.pathsep.join(
        [*(str(folder) for folder in folders if folder), *([before] if before else [])]
    )
