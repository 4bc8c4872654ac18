"""Calls of a running proxy's `/admin/v1`, for the commands that operate its pools."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from proxy.operate.administration.remote_options import KEY_VARIABLE
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

TIMEOUT_S = 30.0
LONGEST_MESSAGE = 500  # characters


class Refused(LaunchError):
    """The proxy does not let this key do it, or has no such route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One running proxy. transport: another than the network; tests give it."""

    url: str
    key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    transport: httpx.BaseTransport | None = None

    def client(self, timeout_s: float = TIMEOUT_S) -> httpx.Client:
        """Raises LaunchError: the address or the certificates cannot be used."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            return httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout_s,
                trust_env=False,  # a proxy of the environment would get the key
                verify=ssl.create_default_context(cafile=self.ca_file),
                transport=self.transport,
            )
        except (OSError, ValueError, httpx.InvalidURL) as error:
            raise LaunchError(f"--url {self.url} or --ca-file cannot be used: {error}") from None

    def call(
        self, method: str, path: str, body: Any = None, *, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """The answer's JSON. Raises LaunchError as `answer` does."""
        with self.client(timeout_s) as client:
            return answer(client, method, path, body)


def answer(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    """The answer's JSON.

    Raises:
        Refused: the key may not do this, or the proxy has no such route.
        LaunchError: the proxy cannot be reached, refuses, or is something else.
    """
    found = _sent(client, method, path, body)
    content = _json(found)
    if found.is_success and isinstance(content, dict):
        return content
    raise _refusal(found.status_code, content, str(client.base_url), "admin")


def text(client: httpx.Client, path: str, *, scope: str) -> str:
    """A page that is no JSON. scope: what a key needs for it. Raises what `answer` raises."""
    found = _sent(client, "GET", path)
    if found.is_success:
        return found.text
    raise _refusal(found.status_code, _json(found), str(client.base_url), scope)


def _sent(client: httpx.Client, method: str, path: str, body: Any = None) -> httpx.Response:
    try:
        return client.request(method, path, json=body)
    except httpx.TimeoutException:
        raise LaunchError(
            f"the proxy at {client.base_url} has not answered in time. It may still do what it was "
            "asked for: look at its state before you ask again"
        ) from None
    except httpx.HTTPError as error:
        raise LaunchError(
            f"the proxy at {client.base_url} cannot be reached ({error}): start it, or give its "
            "address with --url"
        ) from None


def _json(found: httpx.Response) -> Any:
    """None where the answer is something else."""
    try:
        return found.json()
    except ValueError:
        return None


def _refusal(status: int, content: Any, url: str, scope: str) -> LaunchError:
    error = content.get("error") if isinstance(content, Mapping) else None
    if not isinstance(error, Mapping):
        return LaunchError(
            f"what answers at {url} (with status {status}) is no triton-openai proxy"
        )
    message = str(error.get("message"))[:LONGEST_MESSAGE]
    if status in (401, 403):
        return Refused(
            f"{message} Set {KEY_VARIABLE}, or give --key-file, with a key of the scope {scope}"
        )
    if error.get("code") == "unknown_url":
        return Refused(f"the proxy at {url} cannot be operated: it is an older release")
    return LaunchError(message)


def remote(url: str | None, key_file: Path | None, ca_file: Path | None) -> Remote:
    """The proxy that the options name. Raises LaunchError."""
    return Remote(url=url or own_url(Settings()), key=given_key(key_file), ca_file=ca_file)


def own_url(settings: Settings) -> str:
    """Where the proxy of these settings is reached from this machine."""
    scheme = "http" if settings.tls_cert_file is None else "https"
    return f"{scheme}://{_reachable(settings.host)}:{settings.port}"


def _reachable(host: str) -> str:
    """The host in a URL; for a wildcard address, the loopback address of its family."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def given_key(
    file: Path | None, variable: str = KEY_VARIABLE, what: str = "a key of the scope admin"
) -> str | None:
    """Never an argument's value, which every user of the machine could read. Raises LaunchError."""
    if file is None:
        key, source = os.environ.get(variable, ""), variable
    else:
        key, source = _read(file), f"--key-file {file}"
    if not key and file is not None:
        raise LaunchError(f"{source} is empty: it must have {what}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise LaunchError(f"{source} has no key: a key has printable ASCII characters, no spaces")
    return key or None


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise LaunchError(f"--key-file {file} cannot be read: {error}") from None


def segment(name: str) -> str:
    """A name as one part of a path, whatever characters it has."""
    return quote(name, safe="")
