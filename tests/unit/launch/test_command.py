"""command: what tritonserver is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.launch import command
from proxy.launch.command import Place, Ports
from proxy.launch.folder import RunFolder
from proxy.launch.ranks import World
from proxy.launch.wheel import Wheel

WHEEL = Wheel(site_packages=Path("/venv/lib"), python="3.11")


def arguments(host: str = "127.0.0.1") -> list[str]:
    place = Place(host=host, ports=Ports(grpc=1, http=2, metrics=3), shm_prefix="mine-")
    folder = RunFolder(artifacts=Path("/a folder/artifacts"), python="3.11")
    return command.embedded(WHEEL, folder, place, exit_timeout_s=5)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_every_address_and_every_port_is_the_settings(host):
    told = dict(argument.partition("=")[::2] for argument in arguments(host))
    assert {told[f"--{kind}-address"] for kind in ("grpc", "http", "metrics")} == {host}
    assert [told[f"--{kind}-port"] for kind in ("grpc", "http", "metrics")] == ["1", "2", "3"]


def test_no_path_that_a_shell_reads_has_the_folder_of_the_user():
    assert not [argument for argument in arguments() if "a folder" in argument]


def test_regions_carry_the_launchers_mark():
    assert "--backend-config=python,shm-region-prefix-name=mine-" in arguments()


def test_libraries_and_the_environments_python_come_first():
    base = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/cuda", "HOME": "/home/ann"}
    libraries = [WHEEL.libraries, Path("/python/lib")]
    found = command.environment(base, bin_folder=Path("/venv/bin"), libraries=libraries)
    assert found["PATH"] == "/venv/bin:/usr/bin"
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs:/python/lib:/cuda"
    assert found["HOME"] == "/home/ann"


def test_a_libpython_that_the_loader_finds_adds_no_folder():
    found = command.environment({}, bin_folder=Path("/venv/bin"), libraries=[WHEEL.libraries, None])
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs"


def test_an_installed_server_has_its_own_backends_libraries_and_gpu_metrics():
    place = Place(host="0.0.0.0", ports=Ports(grpc=1, http=2, metrics=3), shm_prefix="mine-")
    folder = RunFolder(artifacts=Path("/artifacts"), python="3.12")
    server = Path("/opt/tritonserver/bin/tritonserver")
    found = command.installed(server, folder, place, World(), exit_timeout_s=5)
    assert found[0] == str(server)
    told = {argument.partition("=")[0] for argument in found}
    assert not told & {"--backend-directory", "--allow-gpu-metrics"}
    assert {"--model-repository", "--disable-auto-complete-config", "--backend-config"} <= told
    assert "LD_LIBRARY_PATH" not in command.environment({}, bin_folder=Path("/venv/bin"))
