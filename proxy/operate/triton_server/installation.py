"""Chooses the tritonserver to start, a container's or else the wheel's, and prepares its start."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from pydantic import SecretStr

from build_engines.models_file import GpuEntry, ModelsFile
from proxy.operate.triton_server import binaries, command, run_folder, shm
from proxy.operate.triton_server.command import Place
from proxy.operate.triton_server.ranks import World
from proxy.operate.triton_server.run_folder import RunFolder
from proxy.operate.triton_server.server import EXIT_TIMEOUT_S, Launch, TritonServer
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from proxy.telemetry.traces.configuration import TraceConfiguration, WrongTraceVariable

SECRET_BYTES = 32


def with_secret(settings: Settings) -> Settings:
    """Settings with the secret for the protocols that `command` restricts in Triton.

    It is TRITON_SECRET, or else a new one, which lasts as long as the launcher, and is neither
    printed nor logged. tritonserver gets it as an option, so other users of the machine can read it
    in /proc: see docs/security.md.
    """
    return settings.model_copy(update={"triton_secret": SecretStr(_secret(settings))})


def _secret(settings: Settings) -> str:
    return settings.triton_secret_value or secrets.token_urlsafe(SECRET_BYTES)


def server(settings: Settings, models: ModelsFile) -> TritonServer:
    """Prepares the run folder, and removes what dead launchers left in /dev/shm.

    Raises:
        LaunchError: the models cannot share a server, or need a container's server; or this Python
            has no shared library.
        OSError: the disk is full, or artifacts/ is not writable.
    """
    if (tritonserver := binaries.tritonserver()) is not None:
        return _installed(tritonserver, settings, World.of(models))
    if on_gpus := [n for n, entry in models.models.items() if isinstance(entry, GpuEntry)]:
        raise LaunchError(
            f"{on_gpus[0]} needs GPUs, and the embedded tritonserver has none: run this in "
            "NVIDIA's container, whose tritonserver is on PATH"
        )
    return embedded(settings)


def embedded(settings: Settings) -> TritonServer:
    """The wheel's server. Raises like `server`."""
    files = binaries.wheel()
    library = binaries.libpython(files.python)
    if library is None:
        raise LaunchError(f"libpython{files.python}.so.1.0 not found: see triton-openai doctor")
    place, folder = _place(settings), run_folder.prepare(settings.artifacts_dir, files)
    environment = command.environment(
        os.environ,
        bin_folder=command.bin_folder(),
        libraries=[files.libraries, library.folder],
    )
    launch = Launch(
        arguments=command.embedded(files, folder, place, exit_timeout_s=EXIT_TIMEOUT_S),
        environment=environment,
        folder=folder,
        place=place,
        start_timeout_s=settings.triton_start_timeout_s,
    )
    return TritonServer(launch)


def _installed(tritonserver: Path, settings: Settings, world: World) -> TritonServer:
    version = ".".join(map(str, sys.version_info[:2]))
    folder = RunFolder(artifacts=settings.artifacts_dir.resolve(), python=version)
    folder.path.mkdir(parents=True, exist_ok=True)
    place = _place(settings)
    arguments = command.installed(tritonserver, folder, place, world, exit_timeout_s=EXIT_TIMEOUT_S)
    environment = command.environment(os.environ, bin_folder=command.bin_folder())
    launch = Launch(
        arguments=arguments,
        environment=environment | world.environment,
        folder=folder,
        place=place,
        start_timeout_s=settings.triton_start_timeout_s,
    )
    return TritonServer(launch)


def _place(settings: Settings) -> Place:
    """Where it listens. The prefix of its shared memory identifies this launcher."""
    shm.sweep_dead()
    try:
        traces = TraceConfiguration.read(os.environ)
    except WrongTraceVariable as error:
        raise LaunchError(str(error)) from None
    return Place(
        host=settings.triton_host,
        grpc_port=settings.triton_grpc_port,
        http_port=settings.triton_http_port,
        metrics_port=settings.triton_metrics_port,
        shm_prefix=shm.this_launcher().prefix(settings.triton_grpc_port),
        secret=_secret(settings),
        traces_url=None if traces is None else traces.endpoint,
    )
