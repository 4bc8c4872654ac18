"""ports: a port that is taken is named with its setting and its holder."""

from __future__ import annotations

import os
import socket

import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import ports


def test_a_free_port_is_held_before_anyone_listens():
    with ports.bind("127.0.0.1", 0, "PORT") as sock:
        assert sock.getsockname()[1] > 0


def test_a_taken_port_names_the_setting_and_the_process():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"PORT={port}.*pid {os.getpid()}.*set PORT"):
            ports.bind("127.0.0.1", port, "PORT")


def test_an_unknown_host_is_refused():
    with pytest.raises(LaunchError, match="HOST=no such host"):
        ports.bind("no such host", 1, "PORT")


def test_a_foreign_address_is_refused():
    with pytest.raises(LaunchError, match="Cannot assign requested address"):
        ports.bind("192.0.2.1", 23999, "PORT")
