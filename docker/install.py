"""Installs packages into an image. The Dockerfiles run it; standard library only.

    install.py lock SECTION…            exactly these sections of the lock files
    install.py beside FOLDER EXTRA…     a venv in FOLDER that also sees this Python's packages, with
                                        the dependencies of pyproject.toml and of these extras

`beside` takes what NVIDIA's container has, and installs the rest into the venv. A package of the
container that does not fit is a conflict: pip reports it, and the image's build fails.
"""

from __future__ import annotations

import re
import site
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTINUED = re.compile(r"\s*\\\n\s*")
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==")
PARENT = "packages_of_the_image.pth"


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
    found = {canonical(one.name): one.version for one in metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in found.items())


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def arguments(mode: str, *names: str) -> list[str]:
    """Of `pip install`; the files that it reads are written.

    Raises:
        ValueError: there is no such mode, or no such section.
    """
    if mode == "lock":
        found = [*ROOT.glob("requirements*.lock"), *ROOT.glob("build_engines/requirements*.lock")]
        locks = "\n".join(path.read_text() for path in found)
        lines = from_lock(locks, names)
        return ["--no-deps", "--require-hashes", "--requirement", _file(lines)]
    if mode == "beside":
        lines = dependencies((ROOT / "pyproject.toml").read_text(), *names)
        return ["--constraint", _file(installed()), "--requirement", _file(lines)]
    raise ValueError(f"unknown mode {mode!r}: give lock SECTION…, or beside FOLDER EXTRA…")


def make_venv(folder: Path) -> str:
    """Makes the venv and returns its Python, which has no pip of its own but sees the image's.

    NVIDIA's container has its Python packages in a venv. `--system-site-packages` shows those of
    the Python below that venv only, so a .pth file adds the packages of this interpreter.
    """
    venv.create(folder, system_site_packages=True, symlinks=True, with_pip=False)
    own = Path(folder, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    here = [path for path in site.getsitepackages() if path.startswith(sys.prefix)]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in here]
    (own / "site-packages" / PARENT).write_text("".join(lines))
    return str(folder / "bin" / "python")


def shadowed(folder: Path) -> set[str]:
    """Packages that the image and the venv have in different versions."""
    inside = [str(path) for path in folder.glob("lib/python*/site-packages")]
    own = {canonical(one.name) for one in metadata.distributions(path=inside)}
    return own & {canonical(one.name) for one in metadata.distributions()}


def _file(lines: Iterable[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("\n".join(lines))
    return file.name


def main(mode: str, *names: str) -> int | str:
    """The exit status, or what sys.exit prints."""
    python, folder = sys.executable, None
    if mode == "beside":
        folder, names = Path(names[0]), names[1:]
        python = make_venv(folder)
    pip = [python, "-m", "pip", "install", "--no-cache-dir"]
    status = subprocess.run([*pip, *arguments(mode, *names)], check=False).returncode
    if status == 0 and folder is not None and (found := sorted(shadowed(folder))):
        return f"{folder} replaces packages of the image: {', '.join(found)}"
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
