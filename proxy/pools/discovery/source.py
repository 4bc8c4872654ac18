"""Sources of endpoints: what all of them share, and the two simplest, a list and a file."""

from __future__ import annotations

import asyncio
import math
import random
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import endpoint_address

MOST_ENDPOINTS = 1000  # of a pool
MOST_REASONS = 8  # logged in one outage
REASON_CHARS = 500
FIRST_S = 0.1
LONGEST_S = 10.0
POLL_S = 0.5
MOST_BYTES = 1_000_000  # of a file

logger = structlog.get_logger(__name__)


class InvalidSource(ValueError):
    """The URL of a source is wrong. The message has the value, without a password."""


class GrowingPause:
    """Doubles from first_s to longest_s, less up to a half at random.

    It begins anew when twice longest_s passed between the end of one pause and the next one.
    """

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._ended_at = -math.inf

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._ended_at > 2 * self._longest_s:
            self._next_s = self._first_s
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, self._longest_s)
        self._ended_at = loop.time()


@dataclass(kw_only=True, eq=False)
class Source(ABC):
    """Where the endpoints of one pool are found. Implements domain.endpoints.EndpointSource."""

    text: str  # the URL without a password, for logs
    is_tls: bool  # connections to the endpoints use TLS
    pause: GrowingPause = field(default_factory=GrowingPause, repr=False)  # between two readings
    place: str = field(default="", init=False)  # what is read now; an error is logged with it
    problem: str | None = field(default=None, init=False)  # why endpoints of the last set lack
    _reasons: set[str] = field(default_factory=set, init=False, repr=False)  # of this outage

    @property
    def certified_name(self) -> str | None:
        """The name that certificates are issued for; None: that of each endpoint's address."""
        return None

    @abstractmethod
    def sets(self) -> AsyncGenerator[Iterable[EndpointAddress], None]:
        """All endpoints, then all of them again from time to time.

        Raises whatever shows that they cannot be read. It is called again then, and when it ends.
        """

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        last: frozenset[EndpointAddress] | None = None
        is_cut = False
        while True:
            try:
                async with aclosing(self.sets()) as sets:
                    async for found in sets:
                        self._note(self.problem)
                        fresh = _different(found)
                        was_cut, is_cut = is_cut, len(fresh) > MOST_ENDPOINTS
                        if is_cut and not was_cut:
                            self._warn_of_many(len(fresh))
                        if (kept := frozenset(fresh[:MOST_ENDPOINTS])) != last:
                            last = kept
                            yield kept
            except Exception as error:  # whatever a server sends, the last endpoints remain
                self._note(f"{self.place}{str(error) or type(error).__name__}")
            await self.pause.wait()

    def _warn_of_many(self, found: int) -> None:
        logger.warning(
            "a pool has too many endpoints",
            source=self.text,
            found=found,
            kept=MOST_ENDPOINTS,
            advice="divide the pool: those beyond the bound get no streams",
        )

    def _note(self, problem: str | None) -> None:
        """Logs when an outage begins and ends, and further reasons in it, but none twice."""
        if problem is None:
            if self._reasons:
                self._reasons.clear()
                logger.info("endpoints can be found again", source=self.text)
            return
        reason = problem[:REASON_CHARS]
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning(
                "endpoints cannot be found",
                source=self.text,
                reason=reason,
                advice="look at the source; the last known endpoints are used until it answers",
            )


def _different(found: Iterable[EndpointAddress]) -> list[EndpointAddress]:
    """By address; of an address with several metrics ports, the highest port counts."""
    ordered = sorted(found, key=lambda each: (each.address, each.metrics_port or 0))
    return list({each.address: each for each in ordered}.values())


@dataclass(kw_only=True, eq=False)
class StaticList(Source):
    addresses: frozenset[EndpointAddress]

    async def sets(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        yield self.addresses
        await asyncio.Event().wait()


@dataclass(kw_only=True, eq=False)
class WatchedFile(Source):
    """One endpoint a line. A file that cannot be read, or with one wrong line, changes nothing."""

    path: Path
    pause: GrowingPause = field(default_factory=lambda: GrowingPause(POLL_S, POLL_S))

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        seen: bytes | None = None
        while True:
            content = await asyncio.to_thread(self._read)
            if content != seen:
                seen = content
                yield self._addresses(content)
            await self.pause.wait()

    def _read(self) -> bytes:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise ValueError(f"{self.path} is not a regular file")
            with self.path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{self.path}: {error.strerror or error}") from None
        if len(content) > MOST_BYTES:
            raise ValueError(f"{self.path} has more than {MOST_BYTES:,} bytes")
        return content

    def _addresses(self, content: bytes) -> list[EndpointAddress]:
        """Raises ValueError, with the file and the line."""
        found = []
        for number, line in enumerate(content.split(b"\n"), start=1):
            try:
                if text := line.decode().partition("#")[0].strip():
                    found.append(endpoint_address(text))
            except UnicodeDecodeError:
                raise ValueError(f"{self.path}, line {number}: it is not UTF-8") from None
            except ValueError as error:
                raise ValueError(f"{self.path}, line {number}: {error}") from None
        return found
