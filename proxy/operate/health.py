"""Asks the proxy of this machine whether it is alive. Called by the command `health`."""

from __future__ import annotations

import http.client
import ssl

from proxy.operate.triton_server.probe import own_address
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

PATH = "/health/live"
TIMEOUT_S = 2.0
OK = 200


def check(settings: Settings) -> None:
    """Over https where the settings have a certificate, which is not verified: it names the public
    host. With TLS_CLIENT_CA_FILE a refusal after the handshake, for want of a client's certificate,
    is an answer, too.

    Raises:
        LaunchError: the proxy does not answer, or not with 200.
    """
    host, context = own_address(settings.host), _context(settings)
    port, kind = settings.port, "http" if context is None else "https"
    connection = (
        http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        if context is None
        else http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    )
    has_connected = False
    try:
        connection.connect()
        has_connected = True
        connection.request("GET", PATH)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if has_connected and settings.tls_client_ca_file is not None:
            return  # TLS 1.3 ends our half of the handshake before the server asks for more
        raise LaunchError(f"{kind}://{host}:{port}{PATH} does not answer: {error!r}") from None
    finally:
        connection.close()
    if status != OK:
        raise LaunchError(f"{kind}://{host}:{port}{PATH} answers {status}")


def _context(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert_file is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
