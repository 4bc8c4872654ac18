"""machine: our own servers on a port, and what an installation of the proxy alone needs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from proxy.operate.doctor import checks, machine
from proxy.operate.triton_server.binaries import Wheel
from tests.fixtures.proxy_image import LOCK, normal
from tests.fixtures.stack import ROOT, free_port

LISTENER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as sock:
    print(sock.getsockname()[1], flush=True)
    sys.stdin.read()
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[-1]])"


def started(*words: str) -> subprocess.Popen:
    """A process with these words in its command line, which listens itself or by a child."""
    return subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("-c", LISTENER, "proxy.cli", "serve"), "serve"),
        (("-c", LISTENER, "/x/bin/triton-openai", "triton"), "triton"),
        (
            ("-c", CHILD, "proxy.cli", "serve", LISTENER),
            "serve",
        ),  # tritonserver, or a worker
        (("-c", LISTENER), None),
        (("-c", LISTENER, "proxy.client", "serve"), None),
    ],
)
def test_the_process_or_one_above_it_is_a_command_of_ours(words, command):
    with started(*words) as process:
        port = int(process.stdout.readline())
        check = checks.port("PORT", "127.0.0.1", port, {})
        found = machine.recognised(check, port)
        process.stdin.close()
    assert not check.ok
    if command is None:
        assert found == check
    else:
        assert found.ok
        said = f"{port} is held by your running triton-openai {command} (pid {process.pid})"
        assert found.detail == said


def test_a_free_port_stays_free():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    check = checks.port("PORT", "127.0.0.1", port, {})
    assert machine.recognised(check, port) == check


NO_WHEEL = Wheel(site_packages=Path("/nowhere"), python="3.11")


def test_it_is_one_only_where_there_is_neither_a_tritonserver_nor_torch(tmp_path):
    server = tmp_path / "pytriton" / "tritonserver" / "bin" / "tritonserver"
    server.parent.mkdir(parents=True)
    server.touch()
    wheel = Wheel(site_packages=tmp_path, python="3.11")
    neither = machine.EMBEDDED
    assert machine.is_proxy_alone(None, NO_WHEEL, neither)
    assert not machine.is_proxy_alone(Path("/opt/tritonserver"), NO_WHEEL, neither)
    assert not machine.is_proxy_alone(None, wheel, neither)
    assert not machine.is_proxy_alone(None, NO_WHEEL, ["torch"])


def test_a_triton_that_is_named_must_take_connections():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"grpc://127.0.0.1:{sock.getsockname()[1]}"
        assert [one.ok for one in checks.tritons(url, url)] == [True]
    (gone,) = checks.tritons(url, url)
    assert not gone.ok
    assert url.removeprefix("grpc://") in gone.detail
    assert gone.remedy
    assert [one.ok for one in checks.tritons(None, url)] == [True], "nobody named one"
    assert [one.ok for one in checks.tritons(f"{url},grpc://127.0.0.1:1", url)] == [False]
    (found,) = checks.tritons("dns+grpc://triton:8001", "dns+grpc://triton:8001")
    assert found.ok
    assert not any(one.ok for one in checks.tritons("ftp://x", "ftp://x"))


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
    assert not {"glibc", "numpy", "shared memory"} & set(re.findall(r"  ([\w ]+):", done.stdout))
