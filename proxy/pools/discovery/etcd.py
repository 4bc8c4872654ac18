"""Endpoints that are keys of etcd under a prefix: an endpoint goes when its key's lease ends.

Speaks etcd's gRPC gateway, JSON over HTTP: etcd.io/docs/v3.4/dev-guide/api_grpc_gateway. The
gateway writes bytes in base64 and numbers of 64 bits as strings, and leaves out what is zero.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import structlog
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery import json_watch
from proxy.pools.discovery.endpoint_address import endpoint_address, host_and_port, joined, shown
from proxy.pools.discovery.source import Source

MOST_KEYS = 5000
# A watch ends after this time without changes, and all keys are read again: nothing else shows that
# a silent connection is dead.
WATCH_S = 60.0
PAGE_KEYS = 500

logger = structlog.get_logger(__name__)


class Pair(BaseModel):
    key: Base64Bytes
    value: Base64Bytes = b""


class Header(BaseModel):
    revision: int


class Page(BaseModel):
    header: Header
    kvs: list[Pair] | None = None
    more: bool = False


class Token(BaseModel):
    token: Annotated[str, Field(pattern=r"^[!-~]+$")]


class Result(BaseModel):
    compact_revision: int = 0
    canceled: bool = False
    cancel_reason: str = ""
    events: list[Any] | None = None


class Line(BaseModel):
    result: Result | None = None
    error: Any = None


class Value(BaseModel):
    """An endpoint as JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)

    address: str
    metrics_port: Annotated[int, Field(gt=0, lt=65_536)] | None = None


def endpoint_in(value: bytes) -> EndpointAddress:
    """Of `host:port?metrics=port`, or of JSON as {"address": "host:port", "metrics_port": 8002}.

    Raises ValueError.
    """
    text = value.decode().strip()
    if not text.startswith("{"):
        return endpoint_address(text)
    found = json_watch.parsed(value, Value)
    return EndpointAddress(joined(*host_and_port(found.address)), found.metrics_port)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def end_of_prefix(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix, as etcd's `range_end`; prefix is not empty."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"


@dataclass(kw_only=True, eq=False)
class EtcdPrefix(Source):
    """hosts: base URLs. username, password: both or neither. ca_file: None for the system's."""

    hosts: tuple[str, ...]
    prefix: str
    username: str | None
    password: str | None = field(repr=False)
    ca_file: Path | None
    watch_s: float = WATCH_S
    _host: int = field(default=0, init=False)
    _wrong: dict[bytes, bytes] = field(default_factory=dict, init=False, repr=False)  # logged

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        """All keys are read again after each change. Ends when there was none for watch_s, and
        after that time in any case. After a failure the next host is asked.
        """
        now = asyncio.get_running_loop().time
        ends_at = now() + self.watch_s
        host = self.hosts[self._host % len(self.hosts)]
        self.place = f"{host}: "
        try:
            async with await json_watch.http_client(host, self.ca_file) as client:
                await self._log_in(client)
                while True:
                    pairs, revision = await self._read(client)
                    yield self._endpoints(pairs)
                    if not await self._change(client, revision + 1) or now() > ends_at:
                        return
        except Exception:
            self._host += 1
            raise

    async def _log_in(self, client: httpx.AsyncClient) -> None:
        """Tokens end, so a new one is asked for each time."""
        if self.username is None:
            return
        body = {"name": self.username, "password": self.password}
        request = client.build_request("POST", "/v3/auth/authenticate", json=body)
        found = await json_watch.answer(client, request, Token)
        client.headers["Authorization"] = found.token

    async def _read(self, client: httpx.AsyncClient) -> tuple[dict[bytes, bytes], int]:
        """All keys and values as of one revision, page by page, and the revision."""
        start, revision, found = self.prefix.encode(), 0, dict[bytes, bytes]()
        while True:
            body = {**self._range(start), "limit": str(PAGE_KEYS), "revision": str(revision)}
            request = client.build_request("POST", "/v3/kv/range", json=body)
            page = await json_watch.answer(client, request, Page)
            pairs = page.kvs or []
            found.update((pair.key, pair.value) for pair in pairs)
            if len(found) > MOST_KEYS:
                raise ValueError(f"there are more than {MOST_KEYS:,} keys under the prefix")
            revision = revision or page.header.revision
            if not page.more or not pairs:
                return found, revision
            start = pairs[-1].key + b"\0"

    def _range(self, start: bytes) -> dict[str, str]:
        end = end_of_prefix(self.prefix.encode())
        return {"key": encoded(start), "range_end": encoded(end)}

    async def _change(self, client: httpx.AsyncClient, revision: int) -> bool:
        """Waits for a change from the revision on. False: there was none for watch_s."""
        wanted = {**self._range(self.prefix.encode()), "start_revision": str(revision)}
        request = client.build_request(
            "POST",
            "/v3/watch",
            json={"create_request": wanted},
            # etcd's client.WithRequireLeader: ends the watch at a member without a leader
            headers={"Grpc-Metadata-hasleader": "true"},
        )
        lines = json_watch.lines(client, request, Line, lasts_s=self.watch_s)
        with suppress(httpx.ReadTimeout):
            async with aclosing(lines) as answers:
                async for answer in answers:
                    result = answer.result
                    if result is not None and (result.events or result.compact_revision):
                        return True
                    if result is None or result.canceled:
                        why = answer.error if result is None else result.cancel_reason
                        raise ValueError(f"etcd ended a watch: {why}")
        return False

    def _endpoints(self, pairs: Mapping[bytes, bytes]) -> list[EndpointAddress]:
        """A value that is not an endpoint is logged once, and left out."""
        found, wrong = [], {}
        for key, value in pairs.items():
            try:
                found.append(endpoint_in(value))
            except ValueError as error:
                wrong[key] = value
                if self._wrong.get(key) != value:
                    logger.warning(
                        "a key is no endpoint",
                        source=self.text,
                        key=shown(key.decode(errors="replace")),
                        reason=shown(str(error)),
                        advice="correct or delete this key in etcd",
                    )
        self._wrong = wrong
        return found
