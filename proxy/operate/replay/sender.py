"""Reads the records of a folder, and sends them to a proxy, several at once."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx
from pydantic import TypeAdapter, ValidationError

from proxy.domain.errors import LaunchError
from proxy.journal.journal import VERSION, Recorded, record_files
from proxy.operate.replay.comparison import Comparison, Replayed, compare

PATH = re.compile(r"(/[a-z0-9_]+)+")  # never another host, which would get the key
# Statuses that depend on the load and the callers at that time: comparing them means nothing.
OF_THE_MOMENT = (401, 403, 408, 409, 429)
LINES = TypeAdapter(Recorded)


@dataclass(slots=True, kw_only=True)
class Selection:
    """Of the records. unreadable, passed_over: counted while they are read; lines that were cut are
    unreadable.
    """

    since: datetime | None = None
    tenant: str | None = None
    model: str | None = None
    unreadable: int = field(default=0, init=False)
    passed_over: int = field(default=0, init=False)

    def of(self, folder: Path) -> Iterator[Recorded]:
        """Those that can be compared. Raises OSError."""
        for day, file in record_files(folder):
            if self.since is None or day >= self.since.date():
                with file.open("rb") as lines:
                    for line in filter(bytes.strip, lines):
                        found = self._read(line)
                        if found is not None and self._chooses(found):
                            yield found

    def _read(self, line: bytes) -> Recorded | None:
        try:
            found = LINES.validate_json(line)
        except ValidationError:
            found = None
        is_ours = found is not None and found.version == VERSION and found.at.tzinfo is not None
        if found is not None and is_ours and PATH.fullmatch(found.path):
            return found
        self.unreadable += 1
        return None

    def _chooses(self, found: Recorded) -> bool:
        """Passes over an answer that did not come to its end, or did not depend on the request
        alone.
        """
        is_early = self.since is not None and found.at < self.since
        is_other = self.tenant not in (None, found.tenant) or self.model not in (None, found.model)
        if is_early or is_other:
            return False
        status = found.status
        is_whole = found.is_complete and status is not None and status < 500
        can_be_compared = is_whole and status not in OF_THE_MOMENT
        self.passed_over += not can_be_compared
        return can_be_compared


def client_of(
    url: str, *, key: str | None, ca_file: Path | None, timeout_s: float, connections: int
) -> httpx.AsyncClient:
    """Of the proxy that gets the requests.

    Raises LaunchError: the address or the certificates cannot be used.
    """
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        return httpx.AsyncClient(
            base_url=url,
            headers={"Content-Type": "application/json", **headers},
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=connections),
            trust_env=False,  # a proxy of the environment would get key and prompts
            verify=ssl.create_default_context(cafile=ca_file),
        )
    except (OSError, ValueError, httpx.InvalidURL) as error:
        raise LaunchError(f"--to {url} or --ca-file cannot be used: {error}") from None


async def send(
    records: Iterator[Recorded],
    client: httpx.AsyncClient,
    report: Callable[[Comparison], None],
    *,
    concurrency: int,
) -> None:
    """Reports the comparisons as they come; `concurrency` requests run at once."""

    async def send_in_turn() -> None:
        for record in records:  # which all of them share
            report(compare(record, await _sent(client, record)))

    async with client:
        await asyncio.gather(*(send_in_turn() for _ in range(concurrency)))


async def _sent(client: httpx.AsyncClient, record: Recorded) -> Replayed:
    began, first_s, parts = time.perf_counter(), None, []
    try:
        content = record.body.encode()
        async with client.stream("POST", record.path, content=content) as response:
            async for part in response.aiter_bytes():
                if first_s is None:
                    first_s = time.perf_counter() - began
                parts.append(part)
    except httpx.HTTPError as error:
        return Replayed(status=None, fault=f"{type(error).__name__}: {error}")
    return Replayed(
        status=response.status_code,
        answer=b"".join(parts).decode("utf-8", "replace"),
        ttft_ms=None if first_s is None else round(first_s * 1000, 1),
        duration_ms=round((time.perf_counter() - began) * 1000, 1),
    )
