"""The nvidia-pytriton wheel: the paths of tritonserver, its libraries and its Python stubs.

Only its files are used; the package is never imported.
"""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path


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


def installed() -> Wheel:
    """The wheel for this interpreter. Its files may be missing (see doctor.checks)."""
    return Wheel(
        site_packages=Path(sysconfig.get_path("purelib")), python=sysconfig.get_python_version()
    )
