"""What a start of tritonserver needs: command line, environment and files. Called by `cli`.

The server is a container's, or else that of the nvidia-pytriton wheel. It runs in `artifacts/` and
gets relative paths only, because the Python backend starts its stubs through an unquoted `bash -c`,
which a space in a path would break.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from build_engines.models_file import GpuEntry, ModelsFile
from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import binaries, ranks, shm
from proxy.operate.triton_server.binaries import Wheel
from proxy.operate.triton_server.ranks import World
from proxy.settings import Settings
from proxy.settings.triton import TritonServer
from proxy.telemetry.traces.configuration import TraceConfiguration, WrongTraceVariable
from proxy.triton.target import RESTRICTED_KEY

LOOPBACK = "127.0.0.1"
SECRET_BYTES = 32
# The proxy, or a drain, has waited for the streams before; those that still run are too late.
EXIT_TIMEOUT_S = 5
PROGRESS_S = 900.0  # a start that makes progress may take so much longer than its timeout
# The protocol groups of Triton that change or read the server itself. perf_analyzer and other
# clients of the ensemble need health, metadata, model-config, statistics and inference.
RESTRICTED = ("shared-memory", "model-repository", "trace", "logging")
RESTRICTED_OVER_HTTP = (*RESTRICTED, "metadata", "model-config", "statistics", "inference")
# After so long without data from a client Triton sends a PING, and after as long without an answer
# it closes the connection. Its default for a client whose machine has vanished is two hours.
SILENT_PEER_MS = 10_000
# Without this option, clients cannot register shared memory since 26.04, and so not our mark that
# a Triton drains. Older servers do not know it; newer ones name it in an error's text.
CLIENT_REGIONS = "--allow-client-shm"
TRACES_SERVICE = "tritonserver"
# Variables that huggingface_hub and obstore read during a build, and our own secrets.
CREDENTIALS = re.compile(
    r"HF_TOKEN(_PATH)?|HUGGING_FACE_HUB_TOKEN|API_KEY|METRICS_KEY|AWS_\w*(KEY|TOKEN)\w*"
    r"|AZURE_\w*(KEY|SECRET|TOKEN|SAS)\w*|GOOGLE_(APPLICATION_CREDENTIALS|SERVICE_ACCOUNT\w*)"
    r"|TRITON_SECRET|KEY_PEPPER|OLD_KEY_PEPPERS|STORE_URL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one tritonserver, and where it listens."""

    arguments: list[str]
    environment: dict[str, str]
    artifacts: Path
    """Its working directory."""
    grpc_port: int
    metrics_port: int
    shm_prefix: str
    """The prefix of the names of its Python models' shared memory."""
    secret: str = field(repr=False)
    """Gives access to the restricted protocols."""
    start_timeout_s: float
    """The longest time without progress."""
    progress_s: float = PROGRESS_S
    """How much longer the whole start may take."""
    ends_still_start: bool = True
    """Whether a start that stands still fails at once. Ranks on other nodes may come later."""

    @property
    def log(self) -> Path:
        """It has the name of the host, because replicas may share artifacts/."""
        return self.artifacts / "triton" / f"tritonserver.{socket.gethostname()}.log"


def with_secret(settings: Settings) -> Settings:
    """Settings with the secret of the restricted protocols.

    It is TRITON_SECRET, or else a new one, which lasts as long as the launcher, and is neither
    printed nor logged. tritonserver gets it as an option, so other users of the machine can read it
    in /proc: see docs/security.md.
    """
    if settings.triton_secret is not None:
        return settings
    made = SecretStr(secrets.token_urlsafe(SECRET_BYTES))
    return settings.model_copy(update={"triton_secret": made})


def prepared(settings: Settings, models: ModelsFile) -> Launch:
    """Makes the run folder, and removes what dead launchers left in /dev/shm.

    Raises:
        LaunchError: the models cannot share a server, or need a container's server; mpirun is
            needed and missing; or this Python has no shared library.
        OSError: the disk is full, or artifacts/ is not writable.
    """
    if (tritonserver := binaries.tritonserver()) is not None:
        return _launch(settings, tritonserver, World.of(models))
    if on_gpus := [n for n, entry in models.models.items() if isinstance(entry, GpuEntry)]:
        raise LaunchError(
            f"{on_gpus[0]} needs GPUs, and the embedded tritonserver has none: run this in "
            "NVIDIA's container, whose tritonserver is on PATH"
        )
    return embedded(settings)


def embedded(settings: Settings) -> Launch:
    """Starts the wheel's server, without GPU metrics. Raises like `prepared`."""
    wheel = binaries.wheel()
    library = binaries.libpython(wheel.python)
    if library is None:
        raise LaunchError(f"libpython{wheel.python}.so.1.0 not found: see triton-openai doctor")
    backends = copy_backend(settings.artifacts_dir, wheel)
    return _launch(
        settings,
        wheel.tritonserver,
        World(),
        options=[f"--backend-directory={backends}", "--allow-gpu-metrics=false"],
        libraries=[str(wheel.libraries), library],
    )


def _launch(
    settings: Settings,
    tritonserver: Path,
    world: World,
    *,
    options: Sequence[str] = (),
    libraries: Sequence[str] = (),
) -> Launch:
    shm.sweep_dead()
    try:
        traces = TraceConfiguration.read(os.environ)
    except WrongTraceVariable as error:
        raise LaunchError(str(error)) from None
    traces_url = None if traces is None else traces.endpoint
    start = [str(tritonserver), *server_options(settings, traces_url), *options]
    if CLIENT_REGIONS.encode() in tritonserver.read_bytes():
        start.append(f"{CLIENT_REGIONS}=true")
    shm_prefix, secret = shm.prefix(settings.triton_grpc_port), settings.triton_secret_value or ""
    variables = {ranks.SECRET_VARIABLE: secret} if world.launcher else {}
    launch = Launch(
        arguments=ranks.command(start, world, shm_prefix=shm_prefix, secret=secret),
        environment=environment(os.environ, libraries) | world.environment | variables,
        artifacts=settings.artifacts_dir.resolve(),
        grpc_port=settings.triton_grpc_port,
        metrics_port=settings.triton_metrics_port,
        shm_prefix=shm_prefix,
        secret=secret,
        start_timeout_s=settings.triton_start_timeout_s,
        ends_still_start=world.size == 1,
    )
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    return launch


def server_options(settings: TritonServer, traces_url: str | None = None) -> list[str]:
    """See `tritonserver --help`. traces_url: where spans go, over OTLP; None: nothing is traced."""
    return [
        "--model-repository=model_repository",
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        f"--grpc-address={settings.triton_host}",
        f"--grpc-port={settings.triton_grpc_port}",
        f"--grpc-restricted-protocol={_restricted(RESTRICTED, settings)}",
        f"--grpc-keepalive-time={SILENT_PEER_MS}",
        f"--grpc-keepalive-timeout={SILENT_PEER_MS}",
        *_http(settings),
        f"--metrics-address={settings.triton_host}",
        f"--metrics-port={settings.triton_metrics_port}",
        "--log-info=false",
        "--log-verbose=0",
        *([] if traces_url is None else _traces(traces_url)),
    ]


def _http(settings: TritonServer) -> list[str]:
    """Triton's HTTP server is off unless its port is set, and only listens on loopback.

    It had the worst of Triton's security bugs (docs/security.md), and nothing of ours needs it.
    """
    if settings.triton_http_port is None:
        return ["--allow-http=false"]
    return [
        f"--http-address={LOOPBACK}",
        f"--http-port={settings.triton_http_port}",
        f"--http-restricted-api={_restricted(RESTRICTED_OVER_HTTP, settings)}",
    ]


def _traces(url: str) -> list[str]:
    """Only requests with a trace context are traced: the proxy sends it with those it samples."""
    return [
        "--trace-config=mode=opentelemetry",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=0",
        f"--trace-config=opentelemetry,url={url}",
        f"--trace-config=opentelemetry,resource=service.name={TRACES_SERVICE}",
    ]


def _restricted(protocols: Sequence[str], settings: TritonServer) -> str:
    """With a colon; the comma that `tritonserver --help` shows is not accepted."""
    return f"{','.join(protocols)}:{RESTRICTED_KEY}={settings.triton_secret_value}"


def environment(base: Mapping[str, str], libraries: Sequence[str] = ()) -> dict[str, str]:
    """Removes the credentials that only a build or the proxy needs.

    The stub finds its packages through the first `python3` on PATH. For a server that is installed,
    that is the one beside TensorRT-LLM, as in NVIDIA's container, where ours has other packages
    (docker/install.py). For the embedded one it is the running one, whose path is not resolved,
    because a venv's python is a link.

    Args:
        libraries: the folders of the embedded server's libraries.
    """
    found = {name: value for name, value in base.items() if not CREDENTIALS.fullmatch(name)}
    if libraries:
        found["PATH"] = _joined(str(Path(sys.executable).parent), base.get("PATH"))
        found["LD_LIBRARY_PATH"] = _joined(*libraries, base.get("LD_LIBRARY_PATH"))
    return found


def _joined(*folders: str | None) -> str:
    return os.pathsep.join(filter(None, folders))


def copy_backend(artifacts: Path, wheel: Wheel) -> str:
    """Copies the Python backend and its stub from the wheel if they are missing or differ.

    Returns the folder of backends, relative to artifacts/. There is one for each Python version, so
    that another interpreter never uses a wrong stub.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    relative = f"triton/backends-{wheel.python}"
    backend = artifacts.resolve() / relative / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in (*wheel.python_backend.iterdir(), wheel.stub):
        if source.is_file():
            _copy(source, backend / source.name)
    (backend / wheel.stub.name).chmod(0o755)
    return relative


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
