"""From settings to a tritonserver ready to be started."""

from __future__ import annotations

import os

from proxy.launch import command, folder, libpython, shm, wheel
from proxy.launch.command import Ports
from proxy.launch.errors import LaunchError
from proxy.launch.server import EXIT_TIMEOUT_S, Launch, TritonServer
from proxy.settings import Settings


def server(settings: Settings) -> TritonServer:
    """Prepares the run folder and removes what dead launchers left in /dev/shm.

    Raises:
        LaunchError: this Python has no shared library.
        OSError: the disk is full, or artifacts/ cannot be written.
    """
    files = wheel.installed()
    library = libpython.find(files.python, libpython.usual_folders())
    if library is None:
        raise LaunchError(f"libpython{files.python}.so.1.0 not found: see triton-openai doctor")
    shm.sweep_dead()
    run_folder = folder.prepare(settings.artifacts_dir, files)
    ports = Ports(
        grpc=settings.triton_grpc_port,
        http=settings.triton_http_port,
        metrics=settings.triton_metrics_port,
    )
    prefix = shm.this_launcher().prefix(ports.grpc)
    return TritonServer(
        Launch(
            arguments=command.arguments(
                files,
                run_folder,
                ports,
                host=settings.triton_host,
                shm_prefix=prefix,
                exit_timeout_s=EXIT_TIMEOUT_S,
            ),
            environment=command.environment(
                os.environ, files, library, bin_folder=command.bin_folder()
            ),
            folder=run_folder,
            ports=ports,
            shm_prefix=prefix,
            start_timeout_s=settings.triton_start_timeout_s,
        )
    )
