"""Checks whether this Python can run the embedded tritonserver.

usage: python3.11 -m proxy.operate.doctor.suitable

`make` runs it with each candidate before anything is installed. It uses the standard library only,
and must run on older Pythons than those that it accepts. Prints the reason for a refusal.
"""

from __future__ import annotations

import importlib.util
import platform
import sys


def main() -> int:
    reason = unsuitable()
    if reason:
        sys.stdout.write(reason + "\n")
    return 1 if reason else 0


def unsuitable() -> str:
    """The reason; empty if it is suitable."""
    version = ".".join(platform.python_version_tuple()[:2])
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        return f"Python {version} cannot run the embedded tritonserver: 3.10, 3.11 or 3.12 can"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"{platform.system()} {platform.machine()}: x86-64 Linux is needed"
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        return f"Python {version} has no venv module: apt install python{version}-venv"
    from proxy.operate.triton_server import binaries

    if binaries.libpython(version) is None:
        return f"libpython{version}.so.1.0 not found: apt install libpython{version}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
