"""worker: what it reports to the launcher, which may have begun to stop it."""

from __future__ import annotations

import os
import socket

from triton_openai.proxy.http_server import worker


def test_its_process_is_told():
    ours, its = socket.socketpair()
    with ours, its:
        worker.report_started(its)
        assert ours.recv(100) == f"{os.getpid()}\n".encode()


def test_a_launcher_that_waits_no_more_is_no_error():
    ours, its = socket.socketpair()
    with its:
        ours.close()
        worker.report_started(its)
