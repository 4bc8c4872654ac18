"""HttpToolRunner over TLS: connected by address, known by name."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.domain.server_tools import CallStatus, ServerTool, ToolResult
from proxy.server_tools.http_tools import HeaderSecrets, HttpToolRunner
from tests.fixtures import tool_server

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="a certificate is made with the openssl command"
)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of tools.example, in one file."""
    path = tmp_path / "tools.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = "-subj /CN=tools.example -addext subjectAltName=DNS:tools.example"
    files = ["-keyout", path, "-out", f"{path}.crt"]
    command = ["openssl", *options.split(), *name.split(), *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def names(certificate: Path) -> Iterator[list[str | None]]:
    """The server's port comes first, then the names that clients asked for."""
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda sock, name, _: seen.append(name)
    with tool_server.running(context) as server:
        seen.append(str(server.server_port))
        yield seen


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def call(host: str, port: str) -> ToolResult:
    url = f"https://{host}:{port}/weather"
    tool = ServerTool(name="t", url=url, allow_private_addresses=True)
    return asyncio.run(HttpToolRunner(HeaderSecrets({}), loopback).run(tool, {}, timeout_s=5))


def test_the_certificate_is_that_of_the_name(certificate, names, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    assert call("tools.example", names[0]).status is CallStatus.OK
    assert names[1:] == ["tools.example"]
    assert call("other.example", names[0]).status is CallStatus.FAILED


def test_a_certificate_that_nobody_knows_is_not_taken(certificate, names, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert call("tools.example", names[0]).status is CallStatus.FAILED
