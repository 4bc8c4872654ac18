"""The build step that makes the quantization's own Python environment.

TensorRT-LLM 1.2.1 requires transformers 4.57.3, and nvidia-modelopt 0.37 supports transformers
below 4.57 only: they do not fit into one environment. torch is the exception. If the environment
that runs `build` has a torch, as NVIDIA's container has, that one is used: it was built for the
container's CUDA and GPUs, and another one takes up to 5 GB.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata, resources
from pathlib import Path

from build_engines import tool
from build_engines.errors import BuildError
from build_engines.step import Step
from build_engines.tool import Say

LOCK, TORCH = "requirements-quantization.lock", "requirements-torch.txt"
PARENT = "zz_parent.pth"  # read after the environment's own packages, which come first
SIZE = "400 MB; 1 to 5 GB with a torch of its own"
IMPORTS = "import torch, transformers, modelopt.torch.quantization, modelopt.torch.export"


class Environment(Step):
    """artifacts/environments/quantization_environment-KEY/, which all models share."""

    name = "quantization_environment"

    def __init__(self, artifacts: Path, *, torch: str | None) -> None:
        """
        Args:
            torch: the version beside which `build` runs, which is used; None to install one.
        """
        super().__init__(artifacts / "environments")
        self._torch = torch

    @property
    def is_done(self) -> bool:
        """False if the interpreter, or the environment beside it, has moved since."""
        if not python(self.folder).exists():
            return False
        parents = [Path(line) for file in self._parents() for line in file.read_text().splitlines()]
        return all(parent.is_dir() for parent in parents)

    def inputs(self) -> Iterable[str]:
        torch = self._torch
        return [
            f"Python {sys.version_info.major}.{sys.version_info.minor} on {platform.machine()}",
            _shipped(LOCK).read_text(),
            _shipped(TORCH).read_text() if torch is None else f"torch {torch}, of the parent",
        ]

    def shown(self, target: Path) -> Iterable[str]:
        return [tool.shown(command) for command in self._commands(target)]

    def make(self, target: Path, say: Say) -> None:
        if importlib.util.find_spec("pip") is None:
            raise BuildError(f"{sys.prefix} has no pip, which installs {LOCK}: add it")
        for left in self.store.iterdir():  # of other versions, or interrupted
            if left.is_dir():
                shutil.rmtree(left)
        say(f"installing {LOCK} ({SIZE})")
        for command in self._commands(target):
            tool.run(command, log=self.log, say=say)
        if self._torch is not None:
            (_packages(target) / PARENT).write_text("".join(f"{p}\n" for p in parent_packages()))
        tool.run([str(python(target)), "-I", "-c", IMPORTS], log=self.log, say=say)

    def _commands(self, target: Path) -> list[list[str]]:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        pip += ["--python", str(python(target)), "install"]
        lock = [*pip, "--no-deps", "--require-hashes", "--no-compile", "-r", str(_shipped(LOCK))]
        found = [[sys.executable, "-m", "venv", "--clear", "--without-pip", str(target)], lock]
        if self._torch is None:
            found.insert(1, [*pip, "--no-compile", "-r", str(_shipped(TORCH))])
        return found

    def _parents(self) -> list[Path]:
        file = _packages(self.folder) / PARENT
        return [file] if file.is_file() else []


def python(folder: Path) -> Path:
    """The interpreter of the environment in that folder."""
    return folder / "bin" / "python"


def installed_torch() -> str | None:
    """The version of the torch beside which `build` runs."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def parent_packages() -> Sequence[str]:
    """Where this interpreter finds packages.

    `venv --system-site-packages` does not do: from inside a virtual environment, it gives the
    packages of the interpreter below that, and NVIDIA's torch is in a virtual environment.
    """
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if path.endswith(names) and Path(path).is_dir()]


def _packages(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"


def _shipped(name: str) -> Path:
    return Path(str(resources.files("build_engines") / name))
