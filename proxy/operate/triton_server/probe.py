"""One HTTP GET to a server of this machine, to learn whether it is alive or ready."""

from __future__ import annotations

import http.client
import socket
import ssl
from ipaddress import ip_address

from proxy.domain.errors import LaunchError
from proxy.settings import Settings

TIMEOUT_S = 2.0
OK = 200


def own_address(host: str) -> str:
    """Where a server that listens on this host can be reached from the same machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def own_url(settings: Settings) -> str:
    """Where the proxy of these settings is reached from this machine."""
    scheme, host = "http" if settings.tls_cert_file is None else "https", own_address(settings.host)
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{settings.port}"


def get(host: str, port: int, path: str, *, has_tls: bool = False) -> tuple[int, str]:
    """Status and body. Blocks for TIMEOUT_S at most, so call it in a thread.

    Raises:
        OSError: nothing listens there, or it does not answer in time or in HTTP.
    """
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=_any_certificate())
        if has_tls
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    )
    try:
        connection.request("GET", path)
        found = connection.getresponse()
        return found.status, found.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"{host}:{port} did not respond") from error
    finally:
        connection.close()


def check_alive(settings: Settings) -> None:
    """Asks the proxy of these settings.

    Raises:
        LaunchError: it does not answer, or not with 200.
    """
    host, url = own_address(settings.host), f"{own_url(settings)}/health/live"
    try:
        if settings.tls_client_ca_file is not None:
            _shake_hands(host, settings.port)
            return
        has_tls = settings.tls_cert_file is not None
        status, _ = get(host, settings.port, "/health/live", has_tls=has_tls)
    except OSError as error:
        raise LaunchError(f"{url} does not answer: {error.__cause__ or error!r}") from None
    if status != OK:
        raise LaunchError(f"{url} answers {status}")


def _shake_hands(host: str, port: int) -> None:
    """TLS 1.3 ends our half of the handshake before the server asks for our certificate."""
    with (
        socket.create_connection((host, port), TIMEOUT_S) as sock,
        _any_certificate().wrap_socket(sock),
    ):
        return


def _any_certificate() -> ssl.SSLContext:
    """A certificate names the public host, not this address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
