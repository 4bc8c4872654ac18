"""TLS of the proxy's own port; certificates and client authorities can be replaced as it runs.

Every process of the proxy follows the files by itself. Connections keep the certificate of their
handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from triton_openai.proxy import background
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.settings import Settings

POLL_S = 1.0

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


def _context() -> ssl.SSLContext:
    """For servers: TLS 1.2 and 1.3, HTTP/1.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Instead of OpenSSL's question on the terminal."""
    raise ValueError("the private key is encrypted; it must be without a password")
