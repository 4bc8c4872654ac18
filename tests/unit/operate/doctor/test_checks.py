"""checks: each judges one fact and says how to fix it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.doctor import checks, machine
from proxy.operate.triton_server.binaries import Wheel
from proxy.settings import Settings
from tests.fixtures.stack import ROOT


@pytest.mark.parametrize(
    "check",
    [
        checks.python((3, 10)),
        checks.python((3, 12)),
        checks.platform("Linux", "x86_64"),
        checks.glibc("glibc", "2.35"),
        checks.glibc("glibc", "2.100"),
        checks.libpython("", "3.11"),
        checks.numpy("1.26.4"),
        checks.bash("/bin/bash"),
    ],
    ids=lambda check: check.detail,
)
def test_what_is_enough_passes(check):
    assert check.ok


@pytest.mark.parametrize(
    "check",
    [
        checks.python((3, 9)),
        checks.python((3, 13)),
        checks.platform("Linux", "aarch64"),
        checks.platform("Darwin", "x86_64"),
        checks.glibc("glibc", "2.34"),
        checks.glibc("", ""),
        checks.libpython(None, "3.11"),
        checks.numpy("2.1.0"),
        checks.numpy(None),
        checks.bash(None),
        checks.tritonserver(Wheel(site_packages=Path("/nowhere"), python="3.11")),
        checks.shared_memory(Path("/nowhere")),
        checks.models("models file", "cannot read it", ok=False),
        checks.weights("demo", Path("/nowhere")),
    ],
    ids=lambda check: check.detail,
)
def test_what_is_not_enough_fails_with_a_remedy(check):
    assert not check.ok
    assert check.remedy


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        (["xgrammar"], f"pip install --no-deps {checks.XGRAMMAR}"),
        (["onnxruntime"], "pip install 'triton-openai[embedded]'"),
        (
            ["onnxruntime", "xgrammar"],
            f"pip install 'triton-openai[embedded]' && pip install --no-deps {checks.XGRAMMAR}",
        ),
    ],
)
def test_missing_packages_are_named_with_the_commands_that_install_them(missing, remedy):
    check = checks.packages(missing)
    assert (check.ok, check.remedy) == (False, remedy)
    assert check.detail.startswith(", ".join(missing))


def test_the_packages_are_those_of_the_locks():
    assert f"\n{checks.XGRAMMAR} \\\n" in (ROOT / "requirements.lock").read_text()
    assert checks.XGRAMMAR in (ROOT / "pyproject.toml").read_text()
    lock = (ROOT / "build_engines/requirements-build.lock").read_text()
    apart = {"torch", "xgrammar"}
    assert all(f"\n{name}==" in lock for name in set(machine.BUILD_TOOLS) - apart)


def test_missing_build_tools_fail_no_check_and_are_named_with_the_command():
    check = checks.build_tools(["torch"])
    assert check.ok
    assert check.detail.startswith("torch not installed; ")
    assert "pip install 'triton-openai[build]', or in a clone make build-tools" in check.detail


def test_the_disk_is_that_of_the_first_folder_that_exists(tmp_path):
    assert str(tmp_path) in checks.disk(tmp_path / "not" / "yet").detail


def test_a_taken_port_fails_and_a_free_one_passes():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = checks.port("PORT", "127.0.0.1", port, {})
        assert not check.ok
        assert check.remedy == "set PORT to a free port"
    assert checks.port("PORT", "127.0.0.1", port, {}).ok


def test_two_settings_may_not_name_one_port():
    found = machine.triton_ports(Settings(triton_grpc_port=23998, triton_http_port=23998))
    assert found[0].detail == "TRITON_GRPC_PORT and TRITON_HTTP_PORT are both 23998"


def test_a_start_refuses_with_the_first_failure():
    with pytest.raises(LaunchError, match=r"numpy 2\.1\.0: .*pip install"):
        machine.require(checks.bash("/bin/bash"), checks.numpy("2.1.0"), checks.bash(None))


def test_an_installed_tritonserver_needs_nothing_of_the_wheel(tmp_path, monkeypatch):
    server = tmp_path / "tritonserver"
    server.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = machine.runtime()
    assert [check.name for check in found] == ["tritonserver", "bash"]
    assert str(server) in found[0].detail
