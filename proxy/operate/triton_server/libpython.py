"""Finds libpython, the shared library that Triton's Python stub is linked to."""

from __future__ import annotations

import ctypes.util
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LibPython:
    """folder: None if the system's loader finds the library by itself."""

    name: str
    folder: Path | None


def usual_folders() -> list[Path]:
    """Where this interpreter's library may be; LIBDIR is wrong in a relocated Python."""
    libdir = sysconfig.get_config_var("LIBDIR")
    return [*([Path(libdir)] if libdir else []), Path(sys.base_prefix) / "lib"]


def find(python: str, folders: Iterable[Path]) -> LibPython | None:
    """Looks for `libpython<X.Y>.so.1.0` in the folders, then in the loader's cache."""
    name = f"libpython{python}.so.1.0"
    for folder in folders:
        if (folder / name).is_file():
            return LibPython(name=name, folder=folder)
    if ctypes.util.find_library(f"python{python}") == name:
        return LibPython(name=name, folder=None)
    return None
