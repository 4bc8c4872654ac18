"""health: asks the proxy as its settings say, over http or https."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.operate import health
from proxy.processes.errors import LaunchError
from proxy.server.tls import ReloadingTls
from proxy.settings import Settings
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.stack import free_port


class Alive(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health/live" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Dead(Alive):
    status = 503


class Quiet(http.server.HTTPServer):
    def handle_error(self, *_: object) -> None: ...


@contextmanager
def serving(kind: type[Alive], context: ssl.SSLContext | None = None) -> Iterator[int]:
    with Quiet(("127.0.0.1", 0), kind) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_proxy_that_answers_is_alive(host: str):
    with serving(Alive) as port:
        health.check(Settings(port=port, host=host))


def test_another_status_is_a_failure():
    with serving(Dead) as port, pytest.raises(LaunchError, match="answers 503"):
        health.check(Settings(port=port))


def test_no_answer_is_a_failure():
    with pytest.raises(LaunchError, match="does not answer"):
        health.check(Settings(port=free_port()))


@needs_openssl
def test_with_a_certificate_it_asks_https(tmp_path: Path):
    files = certificate(tmp_path, "first")
    settings = {"tls_cert_file": files[0], "tls_key_file": files[1]}
    with serving(Alive, ReloadingTls(*files, None).context) as port:
        health.check(Settings(port=port, **settings))
        with pytest.raises(LaunchError):
            health.check(Settings(port=port))
    with serving(Alive) as port, pytest.raises(LaunchError, match="https://"):
        health.check(Settings(port=port, **settings))


@needs_openssl
def test_a_proxy_that_wants_a_client_s_certificate_is_alive(tmp_path: Path):
    files, authority = certificate(tmp_path, "first"), certificate(tmp_path, "authority")[0]
    tls = {"tls_cert_file": files[0], "tls_key_file": files[1], "tls_client_ca_file": authority}
    with serving(Alive, ReloadingTls(*files, authority).context) as port:
        health.check(Settings(port=port, **tls))
