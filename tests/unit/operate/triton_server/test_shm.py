"""shm: leftovers of dead launchers go, everything else stays."""

from __future__ import annotations

from pathlib import Path

from proxy.operate.triton_server import shm
from proxy.operate.triton_server.shm import Launcher


def regions(folder: Path, *names: str) -> set[str]:
    for name in names:
        (folder / name).touch()
    return {path.name for path in folder.iterdir()}


def test_a_server_sweeps_its_own_regions_only(tmp_path):
    mine = shm.this_launcher()
    regions(tmp_path, mine.prefix(8001) + "a", mine.prefix(8001) + "b", mine.prefix(8002) + "c")
    assert shm.sweep(mine.prefix(8001), tmp_path) == 2
    assert regions(tmp_path) == {mine.prefix(8002) + "c"}


def test_only_regions_of_dead_launchers_are_swept(tmp_path):
    here = shm.this_launcher()
    reused = Launcher(namespace=here.namespace, pid=here.pid, started_ticks=1)
    gone = Launcher(namespace=here.namespace, pid=2**22 + 1, started_ticks=1)
    elsewhere = Launcher(namespace=7, pid=2**22 + 1, started_ticks=1)
    kept = {here.prefix(1) + "a", elsewhere.prefix(1) + "a", "triton_python_backend_shm_region_x"}
    regions(tmp_path, reused.prefix(1) + "a", gone.prefix(1) + "a", *kept)
    assert shm.sweep_dead(tmp_path) == 2
    assert regions(tmp_path) == kept
