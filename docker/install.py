"""Installs packages into an image. The Dockerfiles run it; standard library only.

    install.py lock SECTION…            exactly these sections of the lock files
    install.py beside FOLDER EXTRA…     a venv in FOLDER that also sees this Python's packages, with
                                        the dependencies of pyproject.toml and of these extras

`beside` is for our own processes in NVIDIA's container: what fits of the container's packages is
used, the rest is installed into the venv. Tritonserver's models and NVIDIA's tools run with the
container's own Python, which does not see the venv. `build` imports the extras' packages from the
container, so those and all that they need stay the container's: if one does not fit, pip reports
the conflict, and the image's build fails.
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
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PIN = re.compile(rf"{NAME.pattern}==")
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


def dependencies(pyproject: str) -> list[str]:
    return list(tomllib.loads(pyproject)["project"]["dependencies"])


def of_extras(pyproject: str, *extras: str) -> list[str]:
    optional = tomllib.loads(pyproject)["project"]["optional-dependencies"]
    return [line for extra in extras for line in optional[extra]]


def kept(lines: Iterable[str], path: list[str]) -> list[str]:
    """A pin for each package in these folders that the requirements need, directly or not."""
    pins: dict[str, str] = {}
    waiting = [*lines]
    while waiting:
        name = canonical(NAME.match(waiting.pop())[0])
        found = next(iter(metadata.distributions(name=name, path=path)), None)
        if found is not None and name not in pins:
            pins[name] = f"{name}=={found.version}"
            waiting += [line for line in found.requires or () if "extra ==" not in line]
    return sorted(pins.values())


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
        pyproject = (ROOT / "pyproject.toml").read_text()
        shared = of_extras(pyproject, *names)
        pins, lines = kept(shared, sys.path), [*dependencies(pyproject), *shared]
        return ["--constraint", _file(pins), "--requirement", _file(lines)]
    raise ValueError(f"unknown mode {mode!r}: give lock SECTION…, or beside FOLDER EXTRA…")


def make_venv(folder: Path) -> str:
    """Makes the venv and returns its Python, which has no pip of its own but sees the image's.

    NVIDIA's container has its Python packages in a venv. `--system-site-packages` shows those of
    the Python below that venv only, so a .pth file adds the packages of this interpreter, after
    the venv's own. It also adds our code, for which PYTHONPATH would reach Triton's models.
    """
    venv.create(folder, system_site_packages=True, symlinks=True, with_pip=False)
    own = Path(folder, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    here = [path for path in site.getsitepackages() if path.startswith(sys.prefix)]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in here] + [f"{ROOT}\n"]
    (own / "site-packages" / PARENT).write_text("".join(lines))
    return str(folder / "bin" / "python")


def _file(lines: Iterable[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("\n".join(lines))
    return file.name


def main(mode: str, *names: str) -> int:
    """The exit status."""
    python = sys.executable
    if mode == "beside":
        python, names = make_venv(Path(names[0])), names[1:]
    pip = [python, "-m", "pip", "install", "--no-cache-dir"]
    return subprocess.run([*pip, *arguments(mode, *names)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
