"""Installs packages into an image. The Dockerfiles run it; standard library only.

    install.py lock SECTION…   exactly these sections of the lock files
    install.py beside EXTRA…   the dependencies of pyproject.toml and of these extras, without
                               replacing a package of the base image

Where a package of NVIDIA's container does not fit, pip reports the conflict, and the image's build
fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTINUED = re.compile(r"\s*\\\n\s*")
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==")


def sections(lock: str) -> dict[str, list[str]]:
    """`# heading` -> the pinned packages below it, each on one line with its hashes."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in CONTINUED.sub(" ", lock).splitlines():
        if line.startswith("# "):
            heading = line.removeprefix("# ")
        elif PIN.match(line):
            found.setdefault(heading, []).append(line)
    return found


def from_lock(lock: str, wanted: Iterable[str]) -> list[str]:
    """
    Raises:
        ValueError: there is no such section.
    """
    known = sections(lock)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"the locks have no section {unknown[0]!r}, they have {list(known)}")
    return [line for name in wanted for line in known[name]]


def dependencies(pyproject: str, *extras: str) -> list[str]:
    project = tomllib.loads(pyproject)["project"]
    named: list[str] = list(project["dependencies"])
    for extra in extras:
        named += project["optional-dependencies"][extra]
    return named


def installed() -> list[str]:
    """A pin for each package of this interpreter."""
    return sorted({f"{found.name}=={found.version}" for found in metadata.distributions()})


def arguments(mode: str, *names: str) -> list[str]:
    """Of `pip install`; the files that it reads are written.

    Raises:
        ValueError: there is no such mode, or no such section.
    """
    if mode == "lock":
        locks = "\n".join(path.read_text() for path in sorted(ROOT.glob("requirements*.lock")))
        lines = from_lock(locks, names)
        return ["--no-deps", "--require-hashes", "--requirement", _file(lines)]
    if mode == "beside":
        lines = dependencies((ROOT / "pyproject.toml").read_text(), *names)
        return ["--constraint", _file(installed()), "--requirement", _file(lines)]
    raise ValueError(f"unknown mode {mode!r}: give lock SECTION…, or beside EXTRA…")


def _file(lines: Iterable[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("\n".join(lines))
    return file.name


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    sys.exit(subprocess.run([*pip, *arguments(*sys.argv[1:])], check=False).returncode)
