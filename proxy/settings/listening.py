"""Where the proxy listens."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, FilePath, model_validator
from pydantic_settings import NoDecode

from proxy.settings.group import Group, Port, Words

HOST = re.compile(r"\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,*]+")


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is neither an origin such as https://example.com nor *")
    return origins


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if not HOST.fullmatch(host):
            raise ValueError(f"{host!r} is neither a host name such as api.example.com nor *")
    return hosts


class Listening(Group):
    """Where the proxy listens"""

    server_host: str | None = None
    """Another name of `HOST`. If both are set, they must agree. For tools that set this name."""
    server_port: Port | None = None
    """Another name of `PORT`. If both are set, they must agree. For tools that set this name."""
    host: str = "127.0.0.1"
    """Address on which the proxy listens. Any but a loopback address needs keys, or
    `AUTH=off`. Set it to serve other machines."""
    port: Port = 9000
    """TCP port of the proxy. Change it where another program has it."""
    page: bool = True
    """Whether `/` is the web page for browsers: playground, live status, keys. Without it they get
    what programs get there, the list of endpoints. Turn it off where callers shall find no page."""
    cors_origins: Annotated[tuple[str, ...], NoDecode, Words, AfterValidator(_origins)] = ()
    """Origins whose pages may call the API from a browser, separated by commas; `*` allows all. Set
    it where web pages call the API."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, Words, AfterValidator(_hosts)] = ()
    """Public names of this server, separated by commas; `*` allows all. A request whose `Host` is
    not among them gets 421. IP addresses and names without public DNS (`localhost`, `proxy`,
    `x.svc`) are always allowed. Set it where the server has a public name."""


class Tls(Group):
    """TLS of the proxy itself"""

    tls_cert_file: FilePath | None = None
    """PEM file with the certificate and its chain. With it the proxy serves https only. A new file
    is used for new connections within seconds, without a restart. Set it where no front terminates
    TLS."""
    tls_key_file: FilePath | None = None
    """PEM file with the private key of `TLS_CERT_FILE`."""
    tls_client_ca_file: FilePath | None = None
    """PEM file with certificate authorities. With it every client needs a certificate that one of
    them has signed, health checks included. Set it where only known machines may connect."""
    plaintext: Literal["on", "off"] = "off"
    """`on`: callers' keys may travel without TLS on another address than loopback. Without it such
    a start needs `TLS_CERT_FILE`, or a front in `FORWARDED_ALLOW_IPS` or `TRUSTED_FRONTS`. Set it
    where nobody else reads the network, as inside a container."""

    @model_validator(mode="after")
    def _files_go_together(self) -> Tls:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("TLS_CERT_FILE and TLS_KEY_FILE go together: set both")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("TLS_CLIENT_CA_FILE needs TLS_CERT_FILE and TLS_KEY_FILE")
        return self
