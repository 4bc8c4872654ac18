"""A file with one endpoint a line, read again when it changes."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import endpoint_address
from proxy.pools.discovery.source import GrowingPause, Source
from proxy.pools.discovery.source_url import FileUrl

POLL_S = 0.5
MOST_BYTES = 1_000_000
# A file can change twice within one tick of its file system's clock: its time is trusted later.
SETTLED_S = 2.0


class WatchedFile(Source):
    """A file that cannot be read, or with one wrong line, changes nothing."""

    def __init__(self, url: FileUrl, *, poll_s: float = POLL_S) -> None:
        super().__init__(str(url), GrowingPause(poll_s, poll_s))
        self._path = Path(url.path)
        self._seen: tuple[int, ...] | None = None

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        while True:
            found = await asyncio.to_thread(self._read_if_new)
            if found is not None:
                yield found
            await self.pause.wait()

    def _read_if_new(self) -> list[EndpointAddress] | None:
        """Its endpoints; None: it is unchanged. Raises ValueError: it cannot be read."""
        seen, self._seen = self._seen, None
        try:
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{self._path} is not a regular file")
            identity = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if identity == seen:
                self._seen = seen
                return None
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{self._path}: {error.strerror or error}") from None
        if time.time() - status.st_mtime > SETTLED_S:
            self._seen = identity
        return addresses_in(content, self._path)


def addresses_in(content: bytes, path: Path) -> list[EndpointAddress]:
    """Raises ValueError, with the file and the line."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes")
    found = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            text = line.decode().partition("#")[0].strip()
            if text:
                found.append(endpoint_address(text))
        except UnicodeDecodeError:
            raise ValueError(f"{path}, line {number}: it is not UTF-8") from None
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return found
