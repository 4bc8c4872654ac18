"""Connections of a proxy of several processes: shared evenly, and none is lost with a worker.

Without a Triton: a worker answers whether it is alive.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections.abc import Iterator

import psutil
import pytest

from tests.fixtures.stack import Stack, eventually

CONNECTIONS = 64
MOST_OF_SHARE = 1.5
ASKED = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module", params=[2, 3, 4])
def proxy(request, start) -> Iterator[Stack]:
    yield from started(start, request.param)


@pytest.fixture
def pair(start) -> Iterator[Stack]:
    yield from started(start, 2)


def started(start, count: int) -> Iterator[Stack]:
    stack = start("proxy", "--triton", "grpc://127.0.0.1:1", "--workers", str(count))
    eventually(
        lambda: stack.log.read_text().count("is ready after") == count, 120, "all have started"
    )
    yield stack
    assert stack.stop() == 0


def workers(stack: Stack) -> list[psutil.Process]:
    """Without the process that ties each to the launcher, and without their sandboxes."""
    found = stack.descendants("triton_openai.proxy.http_server.worker")
    ties = {process.pid for process in found if "-I" in process.cmdline()}
    return [p for p in found if p.pid not in ties and p.ppid() in ties]


def connections(worker: psutil.Process, port: int) -> int:
    found = worker.net_connections("tcp")
    return sum(1 for one in found if one.status == "ESTABLISHED" and one.laddr.port == port)


def caller(stack: Stack) -> socket.socket:
    """Connected at the latest when it is written to."""
    sock = socket.socket()
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        sock.connect(("127.0.0.1", stack.port))
    sock.settimeout(60)
    return sock


def is_answered(sock: socket.socket) -> bool:
    return sock.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after the other"])
def test_no_worker_has_much_more_than_its_share(proxy, at_once):
    processes = workers(proxy)
    with contextlib.ExitStack() as callers:
        opened = []
        for _ in range(CONNECTIONS):
            sock = callers.enter_context(caller(proxy))
            opened.append(sock)
            if not at_once:
                sock.sendall(ASKED)
                assert is_answered(sock)
        if at_once:
            for sock in opened:
                sock.sendall(ASKED)
            assert all(map(is_answered, opened))
        counts = [connections(process, proxy.port) for process in processes]
    assert sum(counts) >= CONNECTIONS
    assert max(counts) <= MOST_OF_SHARE * CONNECTIONS / len(processes), counts


@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL])
def test_callers_of_a_worker_that_hangs_are_answered_in_the_end(pair, ending):
    """By itself when it goes on, by another when it dies."""
    first, second = workers(pair)
    with contextlib.ExitStack() as callers:
        first.suspend()
        opened = [callers.enter_context(caller(pair)) for _ in range(20)]
        for sock in opened:
            sock.sendall(ASKED)
        eventually(lambda: connections(second, pair.port) >= 10, 30, "the other has its share")
        assert len(select.select(opened, [], [], 0)[0]) < len(opened), "some wait at the first"
        first.send_signal(ending)
        assert all(map(is_answered, opened))


def test_a_worker_that_drains_gets_no_more(pair):
    first, second = workers(pair)
    with contextlib.ExitStack() as callers:
        half = callers.enter_context(caller(pair))
        half.sendall(ASKED)
        assert is_answered(half)
        first.terminate()
        for _ in range(20):
            sock = callers.enter_context(caller(pair))
            sock.sendall(ASKED)
            assert is_answered(sock)
        assert second.is_running()
