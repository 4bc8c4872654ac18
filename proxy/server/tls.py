"""TLS of the proxy's own port; certificates and client authorities can be replaced as it runs.

Connections keep the certificate of their handshake. uvicorn's own setting would keep its client
authorities, and wait 60 seconds for each handshake, and for any number of them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import structlog

from proxy import background
from proxy.domain.errors import LaunchError
from proxy.settings import Settings

POLL_S = 1.0
HANDSHAKE_TIMEOUT_S = 10.0
MOST_HANDSHAKES = 1_000  # OpenSSL keeps some 50 KB for each

logger = structlog.get_logger(__name__)

Version = tuple[tuple[int, int, int], ...]


class ReloadingTls:
    """context: for the next handshake; a new one after each change.

    Raises LaunchError: the files do not make a certificate.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._version = self._read_version()
        try:
            self.context = self._new_context()
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"TLS_CERT_FILE={certificate} and TLS_KEY_FILE={key} cannot be used"
                f"{'' if client_ca is None else f' with TLS_CLIENT_CA_FILE={client_ca}'}: {error}"
            ) from None

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Reads the files again when they change, as long as the body runs."""
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            await background.end([following])

    def reload(self) -> bool:
        """Reads the files if they have changed; returns whether they are now in use.

        Files that do not fit together, as in the middle of a replacement, change nothing.
        """
        version = self._read_version()
        if version == self._version:
            return False
        try:
            self.context = self._new_context()
        except (OSError, ValueError) as error:
            logger.warning(
                "new certificate cannot be used",
                detail=str(error),
                advice="repair TLS_CERT_FILE and TLS_KEY_FILE; the certificate from before is "
                "used until then",
            )
            return False
        finally:
            self._version = version
        logger.info("new certificate in use", file=str(self._certificate))
        return True

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self.reload()

    def _new_context(self) -> ssl.SSLContext:
        context = _context()
        context.load_cert_chain(self._certificate, self._key, password=_no_password)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _read_version(self) -> Version:
        """Of what the files are now; of a file that is not there, nothing."""
        found = []
        for file in filter(None, (self._certificate, self._key, self._client_ca)):
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)


def configured(settings: Settings) -> ReloadingTls | None:
    """None without a certificate in the settings. Raises what ReloadingTls raises."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    return ReloadingTls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)


class Handshakes:
    """Connections whose TLS handshake is not complete.

    Args:
        most: at once; one more ends the oldest, which has had the most time.
    """

    def __init__(
        self,
        tls: ReloadingTls,
        *,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
        most: int,
    ) -> None:
        self._tls = tls
        self._timeout_s = timeout_s
        self._most = most
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their beginning

    def begin(self, connection: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        if len(self._tasks) >= self._most:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
            logger.warning(
                "handshake cut off",
                reason="too many at once",
                most=self._most,
                advice="clients begin TLS and do not finish: a scan, or a load balancer's check "
                "that should use http",
            )
        task = asyncio.ensure_future(self._shake(connection, protocol))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _shake(
        self, connection: socket.socket, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol,
                connection,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._timeout_s,
            )
        except OSError:  # the client has disconnected, or its handshake has failed or is late
            connection.close()


class TlsGate(asyncio.Protocol):
    """What uvicorn makes for a plain connection, which begins with a handshake.

    The event loop cannot change a transport to TLS before it has read from it (uvloop reads right
    after `connection_made`), so the socket gets a transport of its own.
    """

    handshakes: ClassVar[Handshakes]
    protocol: ClassVar[type[asyncio.Protocol]]

    def __init__(self, **arguments: Any) -> None:
        self._make = partial(self.protocol, **arguments)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        try:
            connection = transport.get_extra_info("socket").dup()
        except OSError as error:
            logger.warning(
                "connection lost",
                reason=str(error),
                advice="raise the limit of open files (ulimit -n, LimitNOFILE)",
            )
        else:
            self.handshakes.begin(connection, self._make)
        transport.abort()  # closes one of two descriptors, not the connection


def gated(protocol: type[asyncio.Protocol], handshakes: Handshakes) -> type[asyncio.Protocol]:
    """HttpConnection behind TLS, for uvicorn's setting `http`."""
    return type("Gate", (TlsGate,), {"handshakes": handshakes, "protocol": protocol})


def _context() -> ssl.SSLContext:
    """For servers: TLS 1.2 and 1.3, HTTP/1.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Instead of OpenSSL's question on the terminal."""
    raise ValueError("the private key is encrypted; it must be without a password")
