"""Checks of an installation that can run the proxy only: without tritonserver and torch.

The proxy's image is one, and an environment with only the proxy's own packages.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from proxy.operate.doctor.checks import PYTHONS, Check
from proxy.operate.triton_server.binaries import Wheel
from proxy.pools.discovery import source_url
from proxy.pools.discovery.source import InvalidSource, StaticList

# pip's names of the dependencies in pyproject.toml; `triton-openai proxy` imports all of them.
PACKAGES = (
    "fastapi",
    "uvicorn",
    "uvloop",
    "httptools",
    "websockets",
    "httpx",
    "pydantic",
    "pydantic-settings",
    "pyyaml",
    "jinja2",
    "orjson",
    "jsonschema-rs",
    "structlog",
    "prometheus-client",
    "typer",
    "tritonclient",
    "grpcio",
    "hpack",
    "psutil",
    "lark",
    "cachetools",
    "pyjwt",
    "sqlalchemy",
    "aiosqlite",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
)
EMBEDDED = ("nvidia-pytriton", "torch")
CONNECT_TIMEOUT_S = 3.0
Version = Callable[[str], str | None]  # of an installed package


def is_all(installed: Path | None, wheel: Wheel, version: Version) -> bool:
    """Whether only the proxy can run here. installed: a tritonserver on this machine."""
    has_wheel = wheel.tritonserver.exists() or any(map(version, EMBEDDED))
    return installed is None and not has_wheel


def installation() -> Check:
    return Check(
        name="installation",
        ok=True,
        detail="the proxy only: there is no tritonserver and no torch, so `triton-openai proxy` "
        "runs, and `serve`, `triton` and `build` do not",
    )


def python(version: tuple[int, int]) -> Check:
    return Check(
        name="Python",
        ok=version >= PYTHONS[0],
        detail=f"Python {version[0]}.{version[1]} at {sys.executable}",
        remedy="the proxy needs Python 3.10 or later",
    )


def packages(version: Version) -> Check:
    missing = [name for name in PACKAGES if version(name) is None]
    return Check(
        name="packages",
        ok=not missing,
        detail=f"{', '.join(missing)} not installed" if missing else "all are installed",
        remedy="pip install triton-openai, or the section `proxy` of requirements.lock",
    )


def triton(url: str | None, source: str) -> Iterator[Check]:
    """Whether the Tritons in the settings accept connections. source: the url, or its default."""
    if url is None:
        detail = f"is not set: the proxy looks for a Triton at {source}, unless --triton or "
        yield Check(name="TRITON_URL", ok=True, detail=f"{detail}TRITON_URL names another")
        return
    try:
        found = source_url.parse(source)
    except InvalidSource as error:
        yield Check(name="TRITON_URL", ok=False, detail=str(error), remedy="see docs/pools.md")
        return
    if not isinstance(found, StaticList):
        detail = f"{found.text}: its endpoints are looked up when the proxy runs"
        yield Check(name="TRITON_URL", ok=True, detail=detail)
        return
    for endpoint in sorted(found.addresses, key=lambda one: one.address):
        yield _reachable(endpoint.address)


def _reachable(address: str) -> Check:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return Check(
            name="TRITON_URL",
            ok=False,
            detail=f"{address} cannot be reached: {error.strerror or error}",
            remedy="start that Triton, or set TRITON_URL to grpc://host:port of a running one",
        )
    return Check(name="TRITON_URL", ok=True, detail=f"{address} accepts connections")
