"""The command line and environment of tritonserver. Pure. Called by `installation`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proxy.operate.triton_server import ranks
from proxy.operate.triton_server.binaries import Wheel
from proxy.operate.triton_server.ranks import World
from proxy.operate.triton_server.run_folder import RunFolder
from proxy.triton.target import RESTRICTED_KEY

LOOPBACK = "127.0.0.1"
# The protocol groups of Triton that change or read the server itself. perf_analyzer and other
# clients of the ensemble need health, metadata, model-config, statistics and inference.
RESTRICTED = ("shared-memory", "model-repository", "trace", "logging")
RESTRICTED_OVER_HTTP = (*RESTRICTED, "metadata", "model-config", "statistics", "inference")
# After so long without data from a client Triton sends a PING, and after as long without an answer
# it closes the connection. Its default for a client whose machine has vanished is two hours.
SILENT_PEER_MS = 10_000
TRACES_SERVICE = "tritonserver"
# Variables that huggingface_hub and obstore read during a build, and our own secret.
CREDENTIALS = re.compile(
    r"HF_TOKEN(_PATH)?|HUGGING_FACE_HUB_TOKEN|API_KEY|METRICS_KEY|AWS_\w*(KEY|TOKEN)\w*"
    r"|AZURE_\w*(KEY|SECRET|TOKEN|SAS)\w*|GOOGLE_(APPLICATION_CREDENTIALS|SERVICE_ACCOUNT\w*)"
    r"|TRITON_SECRET|KEY_PEPPER|OLD_KEY_PEPPERS|STORE_URL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a server listens. shm_prefix: of its Python models' shared memory.

    http_port: None if Triton's HTTP API is off. secret: gives access to the restricted protocols.
    traces_url: where spans go, over OTLP; None: nothing is traced.
    """

    host: str
    grpc_port: int
    http_port: int | None
    metrics_port: int
    shm_prefix: str
    secret: str = field(repr=False)
    traces_url: str | None = None


def embedded(wheel: Wheel, folder: RunFolder, place: Place, *, exit_timeout_s: int) -> list[str]:
    """The wheel's server, without GPU metrics."""
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
    """A container's server, with one process per rank.

    Raises:
        LaunchError: mpirun is needed and missing.
    """
    start = [str(tritonserver), *_options(folder, place, exit_timeout_s)]
    return ranks.command(start, world, shm_prefix=place.shm_prefix)


def _options(folder: RunFolder, place: Place, exit_timeout_s: int) -> list[str]:
    """See `tritonserver --help`."""
    return [
        f"--model-repository={folder.relative_models}",
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--exit-timeout-secs={exit_timeout_s}",
        f"--grpc-address={place.host}",
        f"--grpc-port={place.grpc_port}",
        f"--grpc-restricted-protocol={_restricted(RESTRICTED, place)}",
        f"--grpc-keepalive-time={SILENT_PEER_MS}",
        f"--grpc-keepalive-timeout={SILENT_PEER_MS}",
        *_http(place),
        f"--metrics-address={place.host}",
        f"--metrics-port={place.metrics_port}",
        "--log-info=false",
        "--log-verbose=0",
        *_traces(place.traces_url),
    ]


def _http(place: Place) -> list[str]:
    """Triton's HTTP server is off unless its port is set, and only listens on loopback.

    It had the worst of Triton's security bugs (docs/security.md), and nothing of ours needs it.
    """
    if place.http_port is None:
        return ["--allow-http=false"]
    return [
        f"--http-address={LOOPBACK}",
        f"--http-port={place.http_port}",
        f"--http-restricted-api={_restricted(RESTRICTED_OVER_HTTP, place)}",
    ]


def _traces(url: str | None) -> list[str]:
    """Only requests with a trace context are traced: the proxy sends it with those it samples."""
    if url is None:
        return []
    return [
        "--trace-config=mode=opentelemetry",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=0",
        f"--trace-config=opentelemetry,url={url}",
        f"--trace-config=opentelemetry,resource=service.name={TRACES_SERVICE}",
    ]


def _restricted(protocols: Sequence[str], place: Place) -> str:
    """With a colon; the comma that `tritonserver --help` shows is not accepted."""
    return f"{','.join(protocols)}:{RESTRICTED_KEY}={place.secret}"


def environment(
    base: Mapping[str, str], *, bin_folder: Path, libraries: Sequence[Path | None] = ()
) -> dict[str, str]:
    """Removes the credentials that only a build or the proxy needs.

    The stub ignores PYTHONPATH and finds its packages through the first `python3` on PATH.
    """
    kept = {name: value for name, value in base.items() if not CREDENTIALS.fullmatch(name)}
    found = {**kept, "PATH": _joined(bin_folder, before=base.get("PATH"))}
    if libraries:
        found["LD_LIBRARY_PATH"] = _joined(*libraries, before=base.get("LD_LIBRARY_PATH"))
    return found


def bin_folder() -> Path:
    """Of the running environment. Not resolved, because a venv's python is a link."""
    return Path(sys.executable).parent


def _joined(*folders: Path | None, before: str | None) -> str:
    return os.pathsep.join(
        [*(str(folder) for folder in folders if folder), *([before] if before else [])]
    )
