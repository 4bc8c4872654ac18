"""machine: our own servers on a port, and what an installation of the proxy alone needs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.operate.doctor import checks, machine
from proxy.operate.triton_server.binaries import Wheel

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
