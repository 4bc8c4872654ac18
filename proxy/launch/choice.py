"""From settings to a tritonserver ready to be started: a container's own, else the wheel's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from build_engines.models_file import GpuEntry, ModelsFile
from proxy.launch import command, container, folder, libpython, shm, wheel
from proxy.launch.command import Place, Ports
from proxy.launch.errors import LaunchError
from proxy.launch.folder import RunFolder
from proxy.launch.ranks import World
from proxy.launch.server import EXIT_TIMEOUT_S, Launch, TritonServer
from proxy.settings import Settings


def server(settings: Settings, models: ModelsFile) -> TritonServer:
    """Prepares the run folder and removes what dead launchers left in /dev/shm.

    Raises:
        LaunchError: the models cannot be in one server, or need a container's; this Python has no
            shared library.
        OSError: the disk is full, or artifacts/ cannot be written.
    """
    place = _place(settings)
    shm.sweep_dead()
    if (tritonserver := container.tritonserver()) is not None:
        launch = _installed(tritonserver, settings, models, place)
    elif on_gpus := [n for n, entry in models.models.items() if isinstance(entry, GpuEntry)]:
        raise LaunchError(
            f"{on_gpus[0]} needs GPUs, and the embedded tritonserver has none: run this in "
            "NVIDIA's container, whose tritonserver is on PATH"
        )
    else:
        launch = _embedded(settings, place)
    return TritonServer(launch)


def _place(settings: Settings) -> Place:
    ports = Ports(
        grpc=settings.triton_grpc_port,
        http=settings.triton_http_port,
        metrics=settings.triton_metrics_port,
    )
    prefix = shm.this_launcher().prefix(ports.grpc)
    return Place(host=settings.triton_host, ports=ports, shm_prefix=prefix)


def _installed(tritonserver: Path, settings: Settings, models: ModelsFile, place: Place) -> Launch:
    run_folder = RunFolder(
        artifacts=settings.artifacts_dir.resolve(), python=".".join(map(str, sys.version_info[:2]))
    )
    run_folder.path.mkdir(parents=True, exist_ok=True)
    return Launch(
        arguments=command.installed(
            tritonserver, run_folder, place, World.of(models), exit_timeout_s=EXIT_TIMEOUT_S
        ),
        environment=command.environment(os.environ, bin_folder=command.bin_folder()),
        folder=run_folder,
        ports=place.ports,
        shm_prefix=place.shm_prefix,
        start_timeout_s=settings.triton_start_timeout_s,
    )


def _embedded(settings: Settings, place: Place) -> Launch:
    files = wheel.installed()
    library = libpython.find(files.python, libpython.usual_folders())
    if library is None:
        raise LaunchError(f"libpython{files.python}.so.1.0 not found: see triton-openai doctor")
    run_folder = folder.prepare(settings.artifacts_dir, files)
    return Launch(
        arguments=command.embedded(files, run_folder, place, exit_timeout_s=EXIT_TIMEOUT_S),
        environment=command.environment(
            os.environ,
            bin_folder=command.bin_folder(),
            libraries=[files.libraries, library.folder],
        ),
        folder=run_folder,
        ports=place.ports,
        shm_prefix=place.shm_prefix,
        start_timeout_s=settings.triton_start_timeout_s,
    )
