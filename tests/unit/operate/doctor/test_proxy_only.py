"""proxy_only: an installation without tritonserver and torch is asked for its own needs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from proxy.operate.doctor import proxy_only
from proxy.operate.triton_server.binaries import Wheel
from tests.fixtures.proxy_image import LOCK, normal
from tests.fixtures.stack import ROOT, free_port


def version(*packages: str):
    return lambda name: "1.0" if name in packages else None


NO_WHEEL = Wheel(site_packages=Path("/nowhere"), python="3.11")


def test_it_is_one_only_where_there_is_neither_a_tritonserver_nor_torch(tmp_path):
    server = tmp_path / "pytriton" / "tritonserver" / "bin" / "tritonserver"
    server.parent.mkdir(parents=True)
    server.touch()
    wheel = Wheel(site_packages=tmp_path, python="3.11")
    assert proxy_only.is_all(None, NO_WHEEL, version("fastapi"))
    assert not proxy_only.is_all(Path("/opt/tritonserver"), NO_WHEEL, version())
    assert not proxy_only.is_all(None, wheel, version())
    assert not proxy_only.is_all(None, NO_WHEEL, version("torch"))
    assert not proxy_only.is_all(None, NO_WHEEL, version("nvidia-pytriton"))


def test_its_packages_are_those_of_the_project():
    tomllib = pytest.importorskip("tomllib", reason="from Python 3.11 on")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {normal(re.match(r"[\w.-]+", line)[0]) for line in project["dependencies"]}
    assert set(proxy_only.PACKAGES) == named | {"grpcio"}  # tritonclient[grpc]
    check = proxy_only.packages(version(*proxy_only.PACKAGES[1:]))
    assert not check.ok
    assert proxy_only.PACKAGES[0] in check.detail


def test_a_triton_that_is_named_must_take_connections():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"grpc://127.0.0.1:{sock.getsockname()[1]}"
        assert [one.ok for one in proxy_only.triton(url, url)] == [True]
    (gone,) = proxy_only.triton(url, url)
    assert not gone.ok
    assert url.removeprefix("grpc://") in gone.detail
    assert gone.remedy
    assert [one.ok for one in proxy_only.triton(None, url)] == [True], "nobody named one"
    assert [one.ok for one in proxy_only.triton(f"{url},grpc://127.0.0.1:1", url)] == [False]
    (found,) = proxy_only.triton("dns+grpc://triton:8001", "dns+grpc://triton:8001")
    assert found.ok
    assert not any(one.ok for one in proxy_only.triton("ftp://x", "ftp://x"))


@pytest.fixture
def proxys_packages(tmp_path: Path) -> Path:
    """A folder of links to what the lock's section `proxy` installs, and nothing else."""
    section = re.search(r"^# proxy\n(.+?)\n\n", LOCK.read_text(), re.DOTALL | re.MULTILINE)[1]
    folder = tmp_path / "packages"
    folder.mkdir()
    wanted = {normal(name) for name in re.findall(r"^([\w.-]+)==", section, re.MULTILINE)}
    for package in metadata.distributions():
        if normal(package.metadata["Name"]) not in wanted:
            continue
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(package.locate_file(top))))
    return folder


def test_doctor_runs_there_and_says_what_it_is(proxys_packages, tmp_path):
    python = Path(sys.base_prefix, "bin", "python3")
    done = subprocess.run(
        [python, "-S", "-m", "proxy.cli", "doctor"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if "TRITON" not in name},
            "PYTHONPATH": f"{proxys_packages}:{ROOT}",
            "PORT": str(free_port()),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the proxy only" in done.stdout
    assert "packages: all are installed" in done.stdout
    assert not {"glibc", "numpy", "shared memory"} & set(re.findall(r"  ([\w ]+):", done.stdout))
