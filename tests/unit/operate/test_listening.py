"""The whole command `proxy`: who is let in where it listens, and TLS in all of its processes."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.start import bound
from proxy.settings import Settings
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.stack import HANG_S, Stack, eventually, free_port, stopped_at_the_end

KEY = "the-one-key-of-these-tests-is-long"


def checked(host: str, **settings: object) -> None:
    bound(Settings(host=host, port=free_port(), **settings)).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8"])
def test_this_machine_is_served_without_keys(host):
    checked(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_addresses_need_keys_or_a_word(host):
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    with pytest.raises(LaunchError, match="without keys the proxy serves this machine only"):
        checked(host)
    checked(host, auth="off")
    checked(host, api_key=KEY, plaintext="on")
    checked(host, jwt_issuer="https://a.example", jwt_audience=("a",), plaintext="on")


FRONT = {"client_name_header": "X-Client-Name", "trusted_fronts": ("10.0.0.1",)}


@needs_openssl
def test_keys_do_not_travel_in_clear_text_by_accident(tmp_path, monkeypatch):
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    checked("127.0.0.1", api_key=KEY)
    with pytest.raises(LaunchError) as refused:
        checked("0.0.0.0", api_key=KEY)
    for way_out in ("TLS_CERT_FILE", "FORWARDED_ALLOW_IPS", "TRUSTED_FRONTS", "PLAINTEXT=on"):
        assert way_out in str(refused.value)
    assert KEY not in str(refused.value)
    file, key = certificate(tmp_path, "own")
    checked("0.0.0.0", api_key=KEY, tls_cert_file=file, tls_key_file=key)
    checked("0.0.0.0", api_key=KEY, **FRONT)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.1")
    checked("0.0.0.0", api_key=KEY)


def models_file(folder: Path) -> Path:
    path = folder / "models.yaml"
    path.write_text("models: {another: {weights: w}}")
    return path


def started(folder: Path, **environment: object) -> Stack:
    """`triton-openai proxy` before a Triton that is not there."""
    given = {
        "PORT": free_port(),
        "TRITON_GRPC_PORT": 1,
        "TRITON_METRICS_PORT": 1,
        "TRITON_URL": "grpc://127.0.0.1:1",
        "MODELS_FILE": models_file(folder),
        "LOG_LEVEL": "debug",
        **environment,
    }
    text = {name: str(value) for name, value in given.items()}
    return Stack(["proxy"], text, folder / "log.txt")


def shown(port: int) -> str:
    """The certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", port))


@needs_openssl
def test_tls_with_keys_and_a_new_certificate(tmp_path):
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    used = tmp_path / "used.crt", tmp_path / "used.key"
    for source, target in zip(first, used, strict=True):
        shutil.copy(source, target)
    with stopped_at_the_end() as stacks:
        stack = started(tmp_path, API_KEY=KEY, TLS_CERT_FILE=used[0], TLS_KEY_FILE=used[1])
        stacks.append(stack)
        url = f"https://127.0.0.1:{stack.port}"
        eventually(lambda: status(f"{url}/health/live") == 200, 20, f"it serves: {stack.log}")
        assert status(f"{url}/v1/models") == 401
        assert status(f"{url}/v1/models", KEY) == 503  # no Triton is there
        assert status(f"http://127.0.0.1:{stack.port}/health/live") is None
        assert shown(stack.port) == first[0].read_text()
        for source, target in zip(second, used, strict=True):
            shutil.copy(source, target)
        new = second[0].read_text()
        eventually(lambda: shown(stack.port) == new, 10, "the new one")
    log = stack.log.read_text()
    assert KEY not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("form", ["auto", "text"])
def test_a_proxy_whose_stdout_nobody_reads_any_more_serves_and_stops(tmp_path, form):
    port = free_port()
    given = {"PORT": str(port), "TRITON_URL": "grpc://127.0.0.1:1", "LOG_FORMAT": form}
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy.cli", "proxy"],
            env={**os.environ, **given, "MODELS_FILE": str(models_file(tmp_path))},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        url = f"http://127.0.0.1:{port}/health/live"
        eventually(lambda: process.poll() is not None or status(url) == 200, 20, "it serves")
        process.terminate()
        assert process.wait(HANG_S) == 0, (tmp_path / "log.txt").read_text()
    finally:
        process.kill()


def status(url: str, key: str | None = None) -> int | None:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        return httpx.get(url, headers=headers, verify=False, timeout=30).status_code
    except httpx.TransportError:
        return None
