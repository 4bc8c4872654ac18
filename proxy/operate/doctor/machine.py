"""Runs the checks of `checks` on this machine. Called by `cli` and `start`."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from build_engines.errors import MissingPackage, UnservableFolder
from build_engines.models_file import ModelsFileError
from build_engines.weights import LocalFolder
from proxy.domain.errors import LaunchError
from proxy.models import policy
from proxy.operate.doctor import checks
from proxy.operate.doctor.checks import Check
from proxy.operate.triton_server import binaries, folders, ports, shm
from proxy.operate.triton_server.binaries import Wheel
from proxy.operate.triton_server.launch import LOOPBACK
from proxy.settings import Settings

INSIDE_TRITON = ("onnxruntime", "tokenizers", "apache-tvm-ffi", "packaging", *checks.APART)
BUILD_TOOLS = (
    "torch",
    "transformers",
    "onnxruntime-genai",
    "gguf",
    "onnx",
    "onnx-ir",
    "safetensors",
    "huggingface-hub",
    "obstore",
    "xgrammar",
)
EMBEDDED = ("nvidia-pytriton", "torch")
MODULE, SCRIPT = "proxy.cli", "triton-openai"


def runtime() -> list[Check]:
    """What the tritonserver that `installation` chooses needs."""
    if (installed := binaries.tritonserver()) is not None:
        python = shutil.which("python3")
        return [checks.installed(installed, python), checks.bash(shutil.which("bash"))]
    files = binaries.wheel()
    return [
        checks.python(sys.version_info[:2]),
        checks.platform(platform.system(), platform.machine()),
        checks.glibc(*platform.libc_ver()),
        checks.libpython(binaries.libpython(files.python), version=files.python),
        checks.tritonserver(files),
        checks.numpy(checks.version("numpy")),
        checks.packages(missing(INSIDE_TRITON)),
        checks.bash(shutil.which("bash")),
    ]


def missing(packages: Iterable[str]) -> list[str]:
    return [name for name in packages if checks.version(name) is None]


def room(settings: Settings) -> list[Check]:
    return [checks.disk(settings.artifacts_dir), checks.shared_memory(shm.SHM)]


def proxy_port(settings: Settings) -> Check:
    return checks.port("PORT", settings.host, settings.port, _triton_ports(settings))


def triton_ports(settings: Settings) -> list[Check]:
    numbers = _triton_ports(settings)
    return [
        checks.port(name, LOOPBACK, number, {k: v for k, v in numbers.items() if k != name})
        for name, number in numbers.items()
    ]


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
    if is_proxy_alone(binaries.tritonserver(), binaries.wheel(), missing(EMBEDDED)):
        port = checks.port("PORT", settings.host, settings.port, {})
        return [
            *checks.proxy_alone(sys.version_info[:2]),
            recognised(port, settings.port),
            *checks.tritons(settings.triton_url, settings.triton_source),
            # the weights are where Triton is
            *(models(settings)[:1] if policy.has_models(settings) else ()),
        ]
    settings = folders.with_shipped_demo(settings)
    chosen = folders.place(settings)
    found = settings.model_copy(update={"artifacts_dir": chosen})
    other = [] if found == settings else [checks.build_folder(settings.artifacts_dir, chosen)]
    tools = [] if binaries.tritonserver() else [checks.build_tools(missing(BUILD_TOOLS))]
    numbers = {"PORT": settings.port, **_triton_ports(settings)}
    ours = [proxy_port(settings), *triton_ports(settings)]
    if len(set(numbers.values())) == len(numbers):  # no two settings name one port
        ours = [recognised(check, numbers[check.name]) for check in ours]
    return [*runtime(), *tools, *other, *room(found), *ours, *models(settings)]


def is_proxy_alone(installed: Path | None, wheel: Wheel, missing: Sequence[str]) -> bool:
    """Whether only the proxy can run here. installed: a tritonserver on this machine."""
    return installed is None and not wheel.tritonserver.exists() and len(missing) == len(EMBEDDED)


def require(*found: Check) -> None:
    """
    Raises:
        LaunchError: the first check that failed, with its remedy.
    """
    for check in found:
        if not check.ok:
            raise LaunchError(f"{check.detail}: {check.remedy}")


def recognised(check: Check, port: int) -> Check:
    """Passes the check of a port that our own running server holds."""
    if check.ok or (server := running(port)) is None:
        return check
    return replace(check, ok=True, detail=f"{port} is held by your running {server}")


def running(port: int) -> str | None:
    """`triton-openai serve (pid 12)`, if this user may see the process.

    The process that listens is the launcher, or its tritonserver.
    """
    import psutil

    try:
        listener = ports.listener(port)
        for process in [] if listener is None else [listener, *listener.parents()]:
            if (command := _command(process.cmdline())) is not None:
                return f"{SCRIPT} {command} (pid {process.pid})"
    except psutil.Error:
        return None
    return None


def _command(words: list[str]) -> str | None:
    """`serve`, from `python -m ….proxy.cli serve` or `.venv/bin/triton-openai serve`."""
    for at, word in enumerate(words[:-1]):
        if word == MODULE or word.rpartition("/")[2] == SCRIPT:
            return words[at + 1]
    return None


def show(found: Iterable[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for check in found:
        mark, style = ("ok  ", "green") if check.ok else ("FAIL", "bold red")
        console.print(Text.assemble((mark, style), f"  {check.name}: {check.detail}"))
        if not check.ok:
            console.print(Text(f"      -> {check.remedy}", style="yellow"))
