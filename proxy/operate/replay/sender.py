"""Sends recorded requests to a proxy, several at once, and compares each answer."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from proxy.domain.errors import LaunchError
from proxy.operate.replay.comparison import Comparison, Replayed, compare
from proxy.operate.replay.recorded import Recorded

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The proxy that gets the requests. transport: another than the network; tests give it."""

    url: str
    key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_s: float = 600.0
    transport: httpx.AsyncBaseTransport | None = None

    def client(self, connections: int) -> httpx.AsyncClient:
        """Raises LaunchError: the address or the certificates cannot be used."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            return httpx.AsyncClient(
                base_url=self.url,
                headers={**JSON, **headers},
                timeout=self.timeout_s,
                limits=httpx.Limits(max_connections=connections),
                trust_env=False,  # a proxy of the environment would get key and prompts
                verify=ssl.create_default_context(cafile=self.ca_file),
                transport=self.transport,
            )
        except (OSError, ValueError, httpx.InvalidURL) as error:
            raise LaunchError(f"--to {self.url} or --ca-file cannot be used: {error}") from None


async def send(
    records: Iterator[Recorded],
    target: Target,
    report: Callable[[Comparison], None],
    *,
    concurrency: int,
) -> None:
    """Reports the comparisons as they come; `concurrency` requests run at once.

    Raises LaunchError.
    """

    async def send_in_turn(client: httpx.AsyncClient) -> None:
        for record in records:  # which all of them share
            report(compare(record, await _sent(client, record)))

    async with target.client(concurrency) as client:
        await asyncio.gather(*(send_in_turn(client) for _ in range(concurrency)))


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
