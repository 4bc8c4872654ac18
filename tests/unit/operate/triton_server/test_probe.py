"""probe: what it makes of servers that answer, answer badly, or do not answer."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import probe
from proxy.server.tls import ReloadingTls
from proxy.settings import Settings
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.stack import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3\r\nt y\r\n0\r\n\r\n"


@contextlib.contextmanager
def serving(answer: bytes | None, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that sends `answer` to each connection; or reads and says nothing."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                connection.recv(10_000)
                if answer is None:
                    connection.recv(10_000)
                else:
                    connection.sendall(answer)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, (200, "ok")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", (200, "until the end")),
        (CHUNKED, (503, "not y")),
    ],
)
def test_an_answer_is_read_whole_and_no_proxy_of_the_environment_is_used(
    answer, expected, monkeypatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(answer) as port:
        assert probe.get("127.0.0.1", port, "/health/ready") == expected


@pytest.mark.parametrize("answer", [b"", b"220 smtp.example ESMTP\r\n", None])
def test_what_is_not_an_answer_is_an_error_that_names_the_port(answer):
    with serving(answer) as port, pytest.raises(OSError, match=rf"1:{port} did not respond"):
        probe.get("127.0.0.1", port, "/health/ready")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_proxy_that_answers_with_200_is_alive(host):
    with serving(OK) as port:
        probe.check_alive(Settings(port=port, host=host))
    with serving(CHUNKED) as port, pytest.raises(LaunchError, match="answers 503"):
        probe.check_alive(Settings(port=port))
    with pytest.raises(LaunchError, match="does not answer"):
        probe.check_alive(Settings(port=free_port()))


@needs_openssl
def test_with_a_certificate_it_asks_https(tmp_path: Path):
    files, authority = certificate(tmp_path, "first"), certificate(tmp_path, "authority")[0]
    tls = {"tls_cert_file": files[0], "tls_key_file": files[1]}
    with serving(OK, ReloadingTls(*files, None).context) as port:
        probe.check_alive(Settings(port=port, **tls))
        with pytest.raises(LaunchError):
            probe.check_alive(Settings(port=port))
    with serving(OK) as port, pytest.raises(LaunchError, match="https://"):
        probe.check_alive(Settings(port=port, **tls))
    with serving(OK, ReloadingTls(*files, authority).context) as port:
        probe.check_alive(Settings(port=port, **tls, tls_client_ca_file=authority))
    with serving(OK) as port, pytest.raises(LaunchError, match="https://"):
        probe.check_alive(Settings(port=port, **tls, tls_client_ca_file=authority))
