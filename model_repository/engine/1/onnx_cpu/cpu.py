"""What a model's graph needs of the CPU; the build writes it beside the graph."""

from __future__ import annotations

import platform
from pathlib import Path

FEATURES_FILE = "cpu_features"
CPU_INFO = Path("/proc/cpuinfo")


def missing_feature(folder: Path, architecture: str, cpu_info: str) -> str | None:
    """The feature that the graph in `folder` needs and this CPU lacks.

    On an x86 CPU without VNNI, ONNX Runtime's products of 8-bit integers saturate: it would answer
    nonsense. cpu_info: the text of /proc/cpuinfo.
    """
    file = folder / FEATURES_FILE
    needs_vnni = file.is_file() and "vnni" in file.read_text().split()
    is_x86 = architecture.lower() in ("x86_64", "amd64")
    has_vnni = not {"avx512_vnni", "avx_vnni"}.isdisjoint(cpu_info.split())
    return "VNNI" if needs_vnni and is_x86 and not has_vnni else None


def missing_here(folder: Path) -> str | None:
    cpu_info = CPU_INFO.read_text() if CPU_INFO.is_file() else ""
    return missing_feature(folder, platform.machine(), cpu_info)
