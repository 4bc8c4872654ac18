"""Where tritonserver is on this machine: in NVIDIA's container, or in the nvidia-pytriton wheel.

Only the wheel's files are used; the package is never imported. Standard library only, because
`doctor.suitable` runs before anything is installed.
"""

from __future__ import annotations

import ctypes.util
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

USUAL = Path("/opt/tritonserver/bin/tritonserver")


def tritonserver() -> Path | None:
    """The one on PATH, or at the path in NVIDIA's containers."""
    if found := shutil.which("tritonserver"):
        return Path(found)
    return USUAL if USUAL.is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """The wheel's files for one Python version (`X.Y`) under one site-packages folder."""

    site_packages: Path
    python: str

    @property
    def _root(self) -> Path:
        return self.site_packages / "pytriton" / "tritonserver"

    @property
    def tritonserver(self) -> Path:
        return self._root / "bin" / "tritonserver"

    @property
    def libraries(self) -> Path:
        return self.site_packages / "nvidia_pytriton.libs"

    @property
    def python_backend(self) -> Path:
        return self._root / "backends" / "python"

    @property
    def stub(self) -> Path:
        return self._root / "python_backend_stubs" / self.python / "triton_python_backend_stub"


def wheel() -> Wheel:
    """The wheel for this interpreter. Its files may be missing (see doctor.checks)."""
    return Wheel(
        site_packages=Path(sysconfig.get_path("purelib")), python=sysconfig.get_python_version()
    )


def libpython(python: str, folders: Iterable[Path] | None = None) -> str | None:
    """The folder of `libpython<X.Y>.so.1.0`, to which Triton's Python stub is linked.

    Empty if the system's loader finds the library by itself; None if there is none.

    Args:
        folders: where this interpreter's library may be by default; LIBDIR is wrong in a relocated
            Python.
    """
    name = f"libpython{python}.so.1.0"
    if folders is None:
        libdir = sysconfig.get_config_var("LIBDIR")
        folders = [*([Path(libdir)] if libdir else []), Path(sys.base_prefix) / "lib"]
    for folder in folders:
        if (folder / name).is_file():
            return str(folder)
    return "" if ctypes.util.find_library(f"python{python}") == name else None
