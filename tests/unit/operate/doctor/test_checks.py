"""checks: each judges one fact and says how to fix it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proxy.operate.doctor import checks, machine
from proxy.operate.triton_server.binaries import Wheel
from tests.fixtures.stack import ROOT

XGRAMMAR, WORDLLAMA = checks.APART.values()


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
        (["xgrammar"], f"pip install --no-deps {XGRAMMAR}"),
        (["wordllama", "xgrammar"], f"pip install --no-deps {XGRAMMAR} {WORDLLAMA}"),
        (["onnxruntime"], "pip install 'triton-openai[embedded]'"),
        (
            ["onnxruntime", "xgrammar"],
            f"pip install 'triton-openai[embedded]' && pip install --no-deps {XGRAMMAR}",
        ),
    ],
)
def test_missing_packages_are_named_with_the_commands_that_install_them(missing, remedy):
    check = checks.packages(missing)
    assert (check.ok, check.remedy) == (False, remedy)
    assert check.detail.startswith(", ".join(missing))


def test_the_packages_are_those_of_the_locks():
    for pin in checks.APART.values():
        assert f"\n{pin} \\\n" in (ROOT / "requirements.lock").read_text()
        assert pin in (ROOT / "pyproject.toml").read_text()
    lock = (ROOT / "build_engines/requirements-build.lock").read_text()
    apart = {"torch", "xgrammar"}
    assert all(f"\n{name}==" in lock for name in set(machine.BUILD_TOOLS) - apart)


def test_a_taken_port_fails_and_a_free_one_passes():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = checks.port("PORT", "127.0.0.1", port, {})
        assert not check.ok
        assert check.remedy == "set PORT to a free port"
    assert checks.port("PORT", "127.0.0.1", port, {}).ok
