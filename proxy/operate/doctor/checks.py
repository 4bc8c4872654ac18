"""The checks, one function each. Called by `machine`.

A check gets the facts that it judges as arguments, so that tests can give those of other machines.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from build_engines.errors import INSTALL_BUILD_TOOLS
from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import ports
from proxy.operate.triton_server.binaries import Wheel
from proxy.pools.discovery import source_url
from proxy.pools.discovery.source import InvalidSource, StaticList

PYTHONS = ((3, 10), (3, 12))
GLIBC = (2, 35)  # the wheel is manylinux_2_35
DISK_BYTES = 1_000_000_000
# The extra `embedded` cannot name these, because pip would bring what they require: torch and
# transformers (1 to 5 GB) for the first, numpy 2 for the second, whose files are all that is read.
APART = {"xgrammar": "xgrammar==0.2.9", "wordllama": "wordllama==0.4.0.post1"}
CONNECT_TIMEOUT_S = 3.0
SHM_BYTES = 64_000_000  # Triton needs 1 MB per model instance, and more under load


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """detail: what was found. remedy: what to do if the check failed."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def version(package: str) -> str | None:
    """The installed one."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def python(version: tuple[int, int]) -> Check:
    return Check(
        name="Python",
        ok=PYTHONS[0] <= version <= PYTHONS[1],
        detail=f"Python {version[0]}.{version[1]} at {sys.executable}",
        remedy="the embedded tritonserver needs Python 3.10 to 3.12: "
        "make an environment with one of them; in a clone, make clean and "
        "make serve PYTHON=python3.11",
    )


def proxy_alone(version: tuple[int, int]) -> list[Check]:
    """An installation without tritonserver and torch, as the proxy's image is one."""
    return [
        Check(
            name="installation",
            ok=True,
            detail="the proxy only: there is no tritonserver and no torch, so `triton-openai "
            "proxy` runs, and `serve`, `triton` and `build` do not",
        ),
        Check(
            name="Python",
            ok=version >= PYTHONS[0],
            detail=f"Python {version[0]}.{version[1]} at {sys.executable}",
            remedy="the proxy needs Python 3.10 or later",
        ),
    ]


def platform(system: str, machine: str) -> Check:
    return Check(
        name="platform",
        ok=(system, machine) == ("Linux", "x86_64"),
        detail=f"{system} {machine}",
        remedy="the embedded tritonserver runs on x86-64 Linux only: run Triton elsewhere "
        "and use `triton-openai proxy --triton grpc://host:port`",
    )


def glibc(library: str, version: str) -> Check:
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return Check(
        name="glibc",
        ok=library == "glibc" and numbers >= GLIBC,
        detail=f"{library or 'unknown C library'} {version}".strip(),
        remedy="glibc 2.35 or later is needed: Debian 12, Ubuntu 22.04 or later",
    )


def libpython(folder: str | None, version: str) -> Check:
    """folder: as `binaries.libpython` returns it."""
    name = f"libpython{version}.so.1.0"
    return Check(
        name="libpython",
        ok=folder is not None,
        detail=f"{name} in {folder or 'the system library path'}"
        if folder is not None
        else f"{name} not found",
        remedy=f"this Python was built without its shared library: apt install libpython{version}, "
        "or use a Python built with --enable-shared",
    )


def numpy(version: str | None) -> Check:
    return Check(
        name="numpy",
        ok=version is not None and version.startswith("1."),
        detail=f"numpy {version}" if version else "numpy is not installed",
        remedy="Triton's Python backend misreads text with numpy 2: pip install 'numpy>=1.26,<2'",
    )


def tritonserver(wheel: Wheel) -> Check:
    missing = [p for p in (wheel.tritonserver, wheel.libraries, wheel.stub) if not p.exists()]
    return Check(
        name="tritonserver",
        ok=not missing,
        detail=f"{missing[0]} does not exist" if missing else str(wheel.tritonserver),
        remedy="pip install 'triton-openai[embedded]' (nvidia-pytriton 0.7.0 must have a stub for "
        f"{wheel.python})",
    )


def installed(path: Path, python: str | None) -> Check:
    """python: the first on PATH, with which such a server runs its Python models."""
    return Check(
        name="tritonserver",
        ok=python is not None,
        detail=f"{path} is installed; its Python models run with {python or 'no python3 on PATH'}",
        remedy="put the python3 that has TensorRT-LLM on PATH: activate its environment",
    )


def packages(missing: Sequence[str]) -> Check:
    """The packages that the Python models inside the embedded tritonserver import."""
    embedded = "pip install 'triton-openai[embedded]'"
    remedies = [embedded] if set(missing) - {*APART} else []
    if apart := [pin for name, pin in APART.items() if name in missing]:
        remedies.append(f"pip install --no-deps {' '.join(apart)}")
    return Check(
        name="packages",
        ok=not missing,
        detail=f"{', '.join(missing)} not installed in {sys.prefix}"
        if missing
        else f"all that the models inside Triton import, in {sys.prefix}",
        remedy=" && ".join(remedies),
    )


def build_tools(missing: Sequence[str]) -> Check:
    """Only builds of other models than the demo need them, so that it never fails."""
    return Check(
        name="build tools",
        ok=True,
        detail=f"{', '.join(missing)} not installed; a build of another model than the demo needs "
        f"them: {INSTALL_BUILD_TOOLS}"
        if missing
        else "all that a build of another model than the demo imports",
    )


def bash(path: str | None) -> Check:
    return Check(
        name="bash",
        ok=path is not None,
        detail=path or "bash is not on PATH",
        remedy="tritonserver starts its Python models through bash: install it",
    )


def disk(artifacts: Path) -> Check:
    existing = next(p for p in (artifacts.resolve(), *artifacts.resolve().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    return Check(
        name="disk",
        ok=free >= DISK_BYTES,
        detail=f"{free / 1e9:.1f} GB free in {existing}",
        remedy="1 GB is needed: free some space, or set ARTIFACTS_DIR to a folder on a larger disk",
    )


def build_folder(named: Path, chosen: Path) -> Check:
    """chosen: the folder that builds and starts use, because `named` is not writable."""
    return Check(
        name="build folder",
        ok=True,
        detail=f"{chosen}, because {named.resolve()} is not writable for you",
    )


def shared_memory(path: Path) -> Check:
    free = shutil.disk_usage(path).free if path.exists() else 0
    return Check(
        name="shared memory",
        ok=free >= SHM_BYTES,
        detail=f"{free / 1e6:.0f} MB free in {path}",
        remedy="64 MB are needed: in a container, docker run --shm-size=256m",
    )


def port(setting: str, host: str, number: int, others: Mapping[str, int]) -> Check:
    """Whether it is free, and differs from the ports of other settings."""
    if twin := next((name for name, other in others.items() if other == number), None):
        return Check(
            name=setting, ok=False, detail=f"{setting} and {twin} are both {number}",
            remedy=f"set {setting} to another port",
        )  # fmt: skip
    try:
        ports.bind(host, number, setting).close()
    except LaunchError as error:
        detail, _, remedy = str(error).rpartition("; ")
        return Check(name=setting, ok=False, detail=detail or str(error), remedy=remedy)
    return Check(name=setting, ok=True, detail=f"{host}:{number} is free")


def tritons(url: str | None, source: str) -> Iterator[Check]:
    """Whether the Tritons in the settings accept connections. source: the url, or its default."""
    if url is None:
        detail = f"is not set: the proxy looks for a Triton at {source}, unless --triton or "
        yield Check(name="TRITON_URL", ok=True, detail=f"{detail}TRITON_URL names another")
        return
    remedy = "start that Triton, or set TRITON_URL to grpc://host:port of a running one"
    try:
        found = source_url.parse(source)
    except InvalidSource as error:
        yield Check(name="TRITON_URL", ok=False, detail=str(error), remedy=remedy)
        return
    if not isinstance(found, StaticList):
        detail = f"{found.text}: its endpoints are looked up when the proxy runs"
        yield Check(name="TRITON_URL", ok=True, detail=detail)
        return
    for address in sorted(endpoint.address for endpoint in found.addresses):
        host, _, number = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(number)), CONNECT_TIMEOUT_S).close()
            detail, ok = f"{address} accepts connections", True
        except OSError as error:
            detail, ok = f"{address} cannot be reached: {error.strerror or error}", False
        yield Check(name="TRITON_URL", ok=ok, detail=detail, remedy=remedy)


def models(name: str, detail: str, *, ok: bool) -> Check:
    """name: the models file, or the single model folder."""
    return Check(
        name=name,
        ok=ok,
        detail=detail,
        remedy="fix it, or set MODELS_FILE to another file or MODEL_PATH to another folder",
    )


def weights(model: str, folder: Path) -> Check:
    return Check(
        name=f"weights of {model}",
        ok=folder.is_dir(),
        detail=str(folder) if folder.is_dir() else f"{folder} does not exist",
        remedy=f"put the model's files there, or correct `weights` of {model} in models.yaml",
    )
