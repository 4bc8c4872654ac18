"""Endpoints that are keys of etcd under a prefix: an endpoint goes when its key's lease ends.

Speaks etcd's gRPC gateway, JSON over HTTP: etcd.io/docs/v3.4/dev-guide/api_grpc_gateway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.etcd_keys import (
    EtcdKeys,
    encoded,
    end_of_prefix,
    key_of,
)
from proxy.pools.discovery.growing_pause import GrowingPause
from proxy.pools.discovery.http_stream import (
    CONNECT_S,
    checked,
    http_client,
    json_lines,
    json_object,
    objects,
)
from proxy.pools.discovery.outage import Outage
from proxy.pools.discovery.source_url import EtcdUrl

# A watch ends after this time without or with changes, and all keys are read again: nothing else
# shows that a silent connection is dead.
WATCH_S = 60.0
PAGE_KEYS = 500
MOST_BYTES = 4_000_000  # of an answer, and of a line of a watch


class EtcdPrefix:
    """Implements domain.endpoints.EndpointSource."""

    def __init__(
        self, url: EtcdUrl, *, pause: GrowingPause | None = None, watch_s: float = WATCH_S
    ) -> None:
        self._url = url
        self._pause = pause or GrowingPause()
        self._watch_s = watch_s
        self._ca_file = None if url.ca_file is None else Path(url.ca_file)
        self._prefix = url.prefix.encode()

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        source = str(self._url)
        latest, outage, keys = EndpointSet(source), Outage(source), EtcdKeys(source)
        host = 0
        while True:
            url = self._url.hosts[host % len(self._url.hosts)]
            try:
                async with aclosing(self._read_and_watched(url, keys)) as states:
                    async for _ in states:
                        outage.ended()
                        if (fresh := latest.changed(keys.addresses())) is not None:
                            yield fresh
            except Exception as error:  # whatever the server sends, the last endpoints remain
                outage.failed(f"{url}: {str(error) or type(error).__name__}")
                host += 1
            await self._pause.wait()

    async def _read_and_watched(self, url: str, keys: EtcdKeys) -> AsyncGenerator[None, None]:
        """Yields when `keys` are known, and after each change. Ends after watch_s."""
        async with await http_client(url, self._ca_file) as client:
            await self._log_in(client)
            revision = await self._read(client, keys)
            yield
            try:
                async with aclosing(self._events(client, revision + 1)) as batches:
                    async for events in batches:
                        for event in events:
                            _apply(event, keys)
                        yield
            except httpx.ReadTimeout:
                return

    async def _log_in(self, client: httpx.AsyncClient) -> None:
        """Tokens end; a new one is asked for each time that all keys are read."""
        if self._url.username is None:
            return
        body = {"name": self._url.username, "password": self._url.password}
        token = (await _posted(client, "/v3/auth/authenticate", body)).get("token")
        if not isinstance(token, str) or not token or not token.isascii():
            raise ValueError("etcd sent no token")
        client.headers["Authorization"] = token

    async def _read(self, client: httpx.AsyncClient, keys: EtcdKeys) -> int:
        """Puts all keys as of one revision, page by page, and returns the revision."""
        keys.clear()
        start, revision = self._prefix, 0
        while True:
            body = {
                "key": encoded(start),
                "range_end": encoded(end_of_prefix(self._prefix)),
                "limit": str(PAGE_KEYS),
                "revision": str(revision),
            }
            page = await _posted(client, "/v3/kv/range", body)
            pairs = objects(page, "kvs")
            for pair in pairs:
                keys.put(pair)
            revision = revision or _revision(page)
            if not page.get("more") or not pairs:
                keys.forget_removed()
                return revision
            start = key_of(pairs[-1]) + b"\0"

    async def _events(
        self, client: httpx.AsyncClient, revision: int
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Changes from the revision on. Ends when etcd has compacted the revision."""
        body = {
            "create_request": {
                "key": encoded(self._prefix),
                "range_end": encoded(end_of_prefix(self._prefix)),
                "start_revision": str(revision),
            }
        }
        request = client.build_request(
            "POST",
            "/v3/watch",
            json=body,
            # etcd's client.WithRequireLeader: ends the watch at a member without a leader
            headers={"Grpc-Metadata-hasleader": "true"},
            timeout=httpx.Timeout(CONNECT_S, read=self._watch_s),
        )
        async with aclosing(await client.send(request, stream=True)) as response:
            await checked(response)
            lines = json_lines(response, most_bytes=MOST_BYTES, lasts_s=self._watch_s)
            async with aclosing(lines) as answers:
                async for answer in answers:
                    result = _result(answer)
                    if int(result.get("compact_revision", 0)):
                        return
                    if result.get("canceled"):
                        raise ValueError(f"etcd ended a watch: {result.get('cancel_reason')}")
                    if events := objects(result, "events"):
                        yield events


async def _posted(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = client.build_request("POST", path, json=body)
    async with aclosing(await client.send(request, stream=True)) as response:
        await checked(response)
        return await json_object(response, MOST_BYTES)


def _revision(page: dict[str, Any]) -> int:
    """Numbers of 64 bits are strings in JSON. Raises ValueError."""
    header = page.get("header")
    revision = header.get("revision") if isinstance(header, dict) else None
    if not isinstance(revision, str):
        raise ValueError("etcd sent keys without a revision")
    return int(revision)


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ValueError(f"etcd ended a watch: {answer.get('error')}")
    return result


def _apply(event: dict[str, Any], keys: EtcdKeys) -> None:
    """The gateway leaves out what is zero: `type` of a PUT. Raises ValueError."""
    kind, pair = event.get("type", "PUT"), event.get("kv")
    if kind not in ("PUT", "DELETE") or not isinstance(pair, dict):
        raise ValueError(f"etcd sent an event of the unknown type {kind!r}")
    if kind == "PUT":
        keys.put(pair)
    else:
        keys.remove(pair)
