"""Runs the checks of `checks` on this machine. Called by `cli` and launch.start."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

from build_engines.errors import MissingPackage, UnservableFolder
from build_engines.models_file import ModelsFileError
from build_engines.weights import LocalFolder
from proxy.models import policy
from proxy.operate.doctor import checks, own_server, proxy_only
from proxy.operate.doctor.checks import Check
from proxy.operate.packages import on_demand
from proxy.operate.triton_server import (
    container,
    libpython,
    own_artifacts,
    shipped_demo,
    shm,
    wheel,
)
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

# Beside xgrammar, see on_demand.
INSIDE_TRITON = ("onnxruntime", "tokenizers", "apache-tvm-ffi", "packaging")


def runtime() -> list[Check]:
    """What the tritonserver that `installation` chooses needs."""
    if (installed := container.tritonserver()) is not None:
        return [checks.installed(installed), checks.bash(shutil.which("bash"))]
    files = wheel.installed()
    return [
        checks.python(sys.version_info[:2]),
        checks.platform(platform.system(), platform.machine()),
        checks.glibc(*platform.libc_ver()),
        checks.libpython(
            libpython.find(files.python, libpython.usual_folders()), version=files.python
        ),
        checks.tritonserver(files),
        checks.numpy(_version("numpy")),
        checks.packages([name for name in INSIDE_TRITON if _version(name) is None]),
        checks.bash(shutil.which("bash")),
    ]


def late_packages(settings: Settings) -> list[Check]:
    """The packages that are installed when first needed."""
    is_forbidden = settings.install_packages == "never"
    return [
        checks.on_demand(
            wanted, wanted.by_hand(settings), is_needed=is_needed, is_forbidden=is_forbidden
        )
        for wanted, is_needed in ((on_demand.GUIDES, True), (on_demand.build_tools(), False))
    ]


def room(settings: Settings) -> list[Check]:
    return [checks.disk(settings.artifacts_dir), checks.shared_memory(shm.SHM)]


def triton_ports(settings: Settings) -> list[Check]:
    return checks.triton_ports(_triton_ports(settings))


def proxy_port(settings: Settings) -> Check:
    return checks.port("PORT", settings.host, settings.port, _triton_ports(settings))


def _triton_ports(settings: Settings) -> dict[str, int]:
    """By setting. HTTP is off if its port is not set."""
    ports = {
        "TRITON_GRPC_PORT": settings.triton_grpc_port,
        "TRITON_HTTP_PORT": settings.triton_http_port,
        "TRITON_METRICS_PORT": settings.triton_metrics_port,
    }
    return {name: port for name, port in ports.items() if port is not None}


def models(settings: Settings) -> list[Check]:
    """Checks the models file or the single folder, and each model's weights."""
    name = "model folder" if settings.model_path else "models file"
    source = settings.model_path or settings.models_file
    try:
        found = policy.models(settings)
    except (ModelsFileError, UnservableFolder, MissingPackage) as error:
        return [checks.models(name, str(error), ok=False)]
    folders = [
        checks.weights(name, entry.weights.path)
        for name, entry in found.built.items()
        if isinstance(entry.weights, LocalFolder)
    ]
    return [checks.models(name, f"{source}: {len(found.models)} model(s)", ok=True), *folders]


def everything(settings: Settings) -> list[Check]:
    """For `doctor`. An installation of the proxy alone gets only the checks that it needs."""
    if proxy_only.is_all(container.tritonserver(), wheel.installed(), _version):
        return [*_proxy_only(settings)]
    settings = shipped_demo.settled(settings)
    chosen = own_artifacts.place(settings)
    found = settings.model_copy(update={"artifacts_dir": chosen})
    other = [] if found == settings else [checks.build_folder(settings.artifacts_dir, chosen)]
    late = [] if container.tritonserver() else late_packages(settings)
    return [*runtime(), *late, *other, *room(found), *_ports(settings), *models(settings)]


def _ports(settings: Settings) -> list[Check]:
    """Ports that a running server of this project holds pass the check."""
    numbers = {"PORT": settings.port, **_triton_ports(settings)}
    found = [proxy_port(settings), *triton_ports(settings)]
    if len(set(numbers.values())) < len(numbers):  # two settings name one port
        return found
    return [own_server.recognised(check, numbers[check.name]) for check in found]


def _proxy_only(settings: Settings) -> Iterator[Check]:
    yield proxy_only.installation()
    yield proxy_only.python(sys.version_info[:2])
    yield proxy_only.packages(_version)
    port = checks.port("PORT", settings.host, settings.port, {})
    yield own_server.recognised(port, settings.port)
    yield from proxy_only.triton(settings.triton_url, settings.triton_source)
    if policy.has_models(settings):
        yield models(settings)[0]  # the weights are where Triton is


def require(*found: Check) -> None:
    """
    Raises:
        LaunchError: the first check that failed, with its remedy.
    """
    for check in found:
        if not check.ok:
            raise LaunchError(f"{check.detail}: {check.remedy}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
