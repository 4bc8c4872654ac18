"""command: what tritonserver is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.launch import command
from proxy.launch.command import Ports
from proxy.launch.folder import RunFolder
from proxy.launch.libpython import LibPython
from proxy.launch.wheel import Wheel

WHEEL = Wheel(site_packages=Path("/venv/lib"), python="3.11")
LIBPYTHON = LibPython(name="libpython3.11.so.1.0", folder=Path("/python/lib"))


def arguments(host: str = "127.0.0.1") -> list[str]:
    return command.arguments(
        WHEEL,
        RunFolder(artifacts=Path("/a folder/artifacts"), python="3.11"),
        Ports(grpc=1, http=2, metrics=3),
        host=host,
        shm_prefix="mine-",
        exit_timeout_s=5,
    )


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
    found = command.environment(base, WHEEL, LIBPYTHON, bin_folder=Path("/venv/bin"))
    assert found["PATH"] == "/venv/bin:/usr/bin"
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs:/python/lib:/cuda"
    assert found["HOME"] == "/home/ann"


def test_a_libpython_that_the_loader_finds_adds_no_folder():
    system = LibPython(name="libpython3.11.so.1.0", folder=None)
    found = command.environment({}, WHEEL, system, bin_folder=Path("/venv/bin"))
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs"
