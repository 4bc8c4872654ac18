"""Endpoints that are keys of etcd under a prefix: an endpoint goes when its key's lease ends.

Speaks etcd's gRPC gateway, JSON over HTTP: etcd.io/docs/v3.4/dev-guide/api_grpc_gateway.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import structlog

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import endpoint_address, host_and_port, joined, shown
from proxy.pools.discovery.http_stream import (
    CONNECT_S,
    checked,
    http_client,
    json_lines,
    json_object,
    objects,
)
from proxy.pools.discovery.source import GrowingPause, Source
from proxy.pools.discovery.source_url import EtcdUrl

MOST_KEYS = 5000
KEY_BYTES = 4096
VALUE_BYTES = 4096
# A watch ends after this time without or with changes, and all keys are read again: nothing else
# shows that a silent connection is dead.
WATCH_S = 60.0
PAGE_KEYS = 500
MOST_BYTES = 4_000_000  # of an answer, and of a line of a watch

logger = structlog.get_logger(__name__)


class EtcdKeys:
    """The endpoints under a prefix, by key. A value that is no endpoint is logged and left out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._endpoints: dict[bytes, EndpointAddress] = {}
        self._keys: set[bytes] = set()
        self._wrong: dict[bytes, int] = {}  # hashes of values that were logged

    def clear(self) -> None:
        """Before all keys are put again."""
        self._endpoints, self._keys = {}, set()

    def forget_removed(self) -> None:
        """After all keys were put again: a wrong value is logged anew if its key comes back."""
        self._wrong = {key: value for key, value in self._wrong.items() if key in self._keys}

    def put(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no key and value, or there are too many keys."""
        key, value = key_of(found), _decoded(found.get("value", ""))
        self._keys.add(key)
        if len(self._keys) > MOST_KEYS:
            raise ValueError(f"there are more than {MOST_KEYS:,} keys under the prefix")
        self._endpoints.pop(key, None)
        try:
            self._endpoints[key] = endpoint_in(value)
            self._wrong.pop(key, None)
        except ValueError as error:
            self._note(key, value, str(error))

    def remove(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no key."""
        key = key_of(found)
        self._keys.discard(key)
        self._endpoints.pop(key, None)
        self._wrong.pop(key, None)

    def addresses(self) -> list[EndpointAddress]:
        return list(self._endpoints.values())

    def _note(self, key: bytes, value: bytes, reason: str) -> None:
        """Logs a wrong value once."""
        if self._wrong.get(key) != hash(value):
            self._wrong[key] = hash(value)
            logger.warning(
                "a key is no endpoint",
                source=self._source,
                key=shown(key.decode(errors="replace")),
                reason=reason,
                advice="correct or delete this key in etcd",
            )


def endpoint_in(value: bytes) -> EndpointAddress:
    """Of `host:port?metrics=port`, or of JSON as {"address": "host:port", "metrics_port": 8002}.

    Raises ValueError.
    """
    if len(value) > VALUE_BYTES:
        raise ValueError(f"the value has more than {VALUE_BYTES:,} bytes")
    text = value.decode().strip()
    if not text.startswith("{"):
        return endpoint_address(text)
    found = orjson.loads(text)
    unknown = ", ".join(map(repr, found.keys() - {"address", "metrics_port"}))
    if unknown:
        raise ValueError(f"unknown: {shown(unknown)}; an endpoint has address and metrics_port")
    address, metrics_port = found.get("address"), found.get("metrics_port")
    if not isinstance(address, str):
        raise ValueError('an endpoint needs "address": "host:port"')
    if metrics_port is None:
        return EndpointAddress(joined(*host_and_port(address)))
    if type(metrics_port) is not int or not 0 < metrics_port < 65_536:
        raise ValueError(f"metrics_port is {shown(repr(metrics_port))}, no number 1 to 65535")
    return EndpointAddress(joined(*host_and_port(address)), metrics_port)


def key_of(found: Mapping[str, Any]) -> bytes:
    """Raises ValueError."""
    key = _decoded(found.get("key"))
    if not 0 < len(key) <= KEY_BYTES:
        raise ValueError(f"etcd sent a key of {len(key):,} bytes; 1 to {KEY_BYTES:,} are read")
    return key


def _decoded(text: object) -> bytes:
    """The gateway of etcd writes bytes in base64."""
    if not isinstance(text, str):
        raise ValueError("etcd sent a key or value that is no text")
    return base64.b64decode(text, validate=True)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def end_of_prefix(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix, as etcd's `range_end`; prefix is not empty."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"


class EtcdPrefix(Source):
    def __init__(
        self, url: EtcdUrl, *, pause: GrowingPause | None = None, watch_s: float = WATCH_S
    ) -> None:
        super().__init__(str(url), pause)
        self._url = url
        self._watch_s = watch_s
        self._ca_file = None if url.ca_file is None else Path(url.ca_file)
        self._prefix = url.prefix.encode()
        self._keys = EtcdKeys(self.name)
        self._host = 0

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        """Ends after watch_s. After a failure the next host is asked."""
        host, keys = self._url.hosts[self._host % len(self._url.hosts)], self._keys
        self.place = f"{host}: "
        try:
            async with await http_client(host, self._ca_file) as client:
                await self._log_in(client)
                revision = await self._read(client, keys)
                yield keys.addresses()
                with suppress(httpx.ReadTimeout):
                    async with aclosing(self._events(client, revision + 1)) as batches:
                        async for events in batches:
                            for event in events:
                                _apply(event, keys)
                            yield keys.addresses()
        except Exception:
            self._host += 1
            raise

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
