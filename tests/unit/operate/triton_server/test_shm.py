"""shm: leftovers of dead launchers go, everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

from proxy.operate.triton_server import shm


def regions(folder: Path, *names: str) -> set[str]:
    for name in names:
        (folder / name).touch()
    return {path.name for path in folder.iterdir()}


def test_a_server_sweeps_its_own_regions_only(tmp_path):
    kept = f"{shm.prefix(8002)}c"
    regions(tmp_path, f"{shm.prefix(8001)}a", f"{shm.prefix(8001)}b", kept)
    assert shm.sweep(shm.prefix(8001), tmp_path) == 2
    assert regions(tmp_path) == {kept}


def test_only_regions_of_dead_launchers_are_swept(tmp_path):
    here = os.stat("/proc/self/ns/pid").st_ino
    reused, gone = (f"triton-openai-{here}-{pid}-1-1-a" for pid in (os.getpid(), 2**22 + 1))
    elsewhere = f"triton-openai-7-{2**22 + 1}-1-1-a"
    kept = {f"{shm.prefix(1)}a", elsewhere, "triton_python_backend_shm_region_x"}
    regions(tmp_path, reused, gone, *kept)
    assert shm.sweep_dead(tmp_path) == 2
    assert regions(tmp_path) == kept
