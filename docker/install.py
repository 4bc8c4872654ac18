"""Installs this project's packages into an image. Run by the Dockerfiles, standard library only.

    install.py lock SECTION…   these sections of requirements.lock, exactly
    install.py beside EXTRA…   pyproject's dependencies and these extras, beside what an image
                               brings, which stays

In NVIDIA's container a package that is there already is never replaced: where one does not fit,
pip ends with the conflict, and so does the image's build.
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
    """`# heading` -> the pinned packages under it, each on one line with its hashes."""
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
        raise ValueError(f"requirements.lock has no section {unknown[0]!r}, it has {list(known)}")
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
        lines = from_lock((ROOT / "requirements.lock").read_text(), names)
        return ["--no-deps", "--require-hashes", "--requirement", _file(lines)]
    if mode == "beside":
        lines = dependencies((ROOT / "pyproject.toml").read_text(), *names)
        return ["--constraint", _file(installed()), "--requirement", _file(lines)]
    raise ValueError(f"{mode!r} is no way to install: lock SECTION…, or beside EXTRA…")


def _file(lines: Iterable[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("\n".join(lines))
    return file.name


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    sys.exit(subprocess.run([*pip, *arguments(*sys.argv[1:])], check=False).returncode)
