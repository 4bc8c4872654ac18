"""machine: tells this project's own listening servers from other programs on a port."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from proxy.operate.doctor import checks, machine

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
