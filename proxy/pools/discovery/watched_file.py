"""A file with one endpoint a line, read again when it changes."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TypeAlias

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import endpoint_address
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.outage import Outage
from proxy.pools.discovery.source_url import FileUrl

POLL_S = 0.5
MOST_BYTES = 1_000_000
# A file can change twice within one tick of its file system's clock: its time is trusted later.
SETTLED_S = 2.0
_Identity: TypeAlias = tuple[int, int, int, int]


class WatchedFile:
    """Implements domain.endpoints.EndpointSource.

    A file that cannot be read, or with one wrong line, changes nothing.
    """

    def __init__(self, url: FileUrl, *, poll_s: float = POLL_S) -> None:
        self._path = Path(url.path)
        self._source = str(url)
        self._poll_s = poll_s

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        latest, outage = EndpointSet(self._source), Outage(self._source)
        seen: _Identity | None = None
        while True:
            try:
                seen, found = await asyncio.to_thread(_read_if_new, self._path, seen)
            except OSError as error:
                seen = None
                outage.failed(f"{self._path}: {error.strerror or error}")
            else:
                if isinstance(found, str):
                    outage.failed(found)
                elif found is not None:
                    outage.ended()
                    if (fresh := latest.changed(found)) is not None:
                        yield fresh
            await asyncio.sleep(self._poll_s)


def _read_if_new(
    path: Path, seen: _Identity | None
) -> tuple[_Identity | None, list[EndpointAddress] | str | None]:
    """The identity of what was read, and its endpoints: None if unchanged, a text if it is wrong.

    Raises OSError.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return None, f"{path} is not a regular file"
    identity = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
    if identity == seen:
        return seen, None
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    is_settled = time.time() - status.st_mtime > SETTLED_S
    try:
        return identity if is_settled else None, addresses_in(content, path)
    except ValueError as error:
        return identity if is_settled else None, str(error)


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
