"""The ready pods of a Kubernetes service: its EndpointSlices are listed, then watched.

The protocol: "Efficient detection of changes", kubernetes.io/docs/reference/using-api/api-concepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.endpoint_slices import EndpointSlices, metadata
from proxy.pools.discovery.growing_pause import GrowingPause
from proxy.pools.discovery.http_stream import (
    CONNECT_S,
    checked,
    http_client,
    json_lines,
    json_object,
    objects,
)
from proxy.pools.discovery.kubernetes_api import KubernetesApi
from proxy.pools.discovery.outage import Outage
from proxy.pools.discovery.source_url import KubernetesUrl

WATCH_S = 60  # then the API server ends a watch, and the next one begins where it ended
LATE_S = 10.0  # a watch that is silent for longer than WATCH_S and this is lost
PAGE_SLICES = 10  # of up to 100 endpoints by default, about 50 kB each
MOST_PAGES = 200
MOST_BYTES = 4_000_000  # of a page, and of an event
TOKEN_BYTES = 64_000
GONE = 410


class _Gone(Exception):
    """The API server no longer has the changes since our resource version."""


class KubernetesService:
    """Implements domain.endpoints.EndpointSource."""

    def __init__(
        self, url: KubernetesUrl, api: KubernetesApi, *, pause: GrowingPause | None = None
    ) -> None:
        self._url = url
        self._api = api
        self._pause = pause or GrowingPause()

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        source = str(self._url)
        latest, outage, unusable = EndpointSet(source), Outage(source), Outage(source)
        while True:
            try:
                async with aclosing(self._listed_and_watched()) as states:
                    async for slices in states:
                        outage.ended()
                        _report(slices.problem, unusable)
                        if (fresh := latest.changed(slices.addresses())) is not None:
                            yield fresh
            except _Gone:
                pass
            except Exception as error:  # whatever the server sends, the last endpoints remain
                outage.failed(f"{self._api.url}: {str(error) or type(error).__name__}")
            await self._pause.wait()

    async def _listed_and_watched(self) -> AsyncGenerator[EndpointSlices, None]:
        """All slices, again after each change. Ends with an error only."""
        slices = EndpointSlices(self._url.port, self._url.metrics_port)
        async with await http_client(self._api.url, self._api.ca_file) as client:
            version = await self._list(client, slices)
            yield slices
            while True:
                async with aclosing(self._events(client, version)) as events:
                    async for event in events:
                        version = _version(event["object"])
                        if _apply(event, slices):
                            yield slices
                await self._pause.wait()

    async def _list(self, client: httpx.AsyncClient, slices: EndpointSlices) -> str:
        """The resource version to watch from."""
        query = {"limit": str(PAGE_SLICES)}
        for _ in range(MOST_PAGES):
            request = await self._request(client, query)
            async with aclosing(await client.send(request, stream=True)) as response:
                await _answered(response)
                page = await json_object(response, MOST_BYTES)
            for each in objects(page, "items"):
                slices.put(each)
            after = metadata(page).get("continue")
            if not after:
                return _version(page)
            query["continue"] = str(after)
        raise ValueError(f"the service has more than {MOST_PAGES * PAGE_SLICES:,} EndpointSlices")

    async def _events(
        self, client: httpx.AsyncClient, version: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Until the API server ends the watch."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            "resourceVersion": version,
        }
        request = await self._request(client, query)
        request.extensions["timeout"] = httpx.Timeout(CONNECT_S, read=WATCH_S + LATE_S).as_dict()
        async with aclosing(await client.send(request, stream=True)) as response:
            await _answered(response)
            lines = json_lines(response, most_bytes=MOST_BYTES, lasts_s=WATCH_S + LATE_S)
            async with aclosing(lines) as events:
                async for event in events:
                    yield _checked_event(event)

    async def _request(self, client: httpx.AsyncClient, query: dict[str, str]) -> httpx.Request:
        headers = {}
        if self._api.token_file is not None:
            headers["Authorization"] = f"Bearer {await asyncio.to_thread(self._token)}"
        return client.build_request(
            "GET",
            f"/apis/discovery.k8s.io/v1/namespaces/{self._url.namespace}/endpointslices",
            params={"labelSelector": f"kubernetes.io/service-name={self._url.service}", **query},
            headers=headers,
        )

    def _token(self) -> str:
        """Raises OSError, and ValueError: the file has none."""
        path = self._api.token_file
        assert path is not None
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES).strip()
        if not token or not token.isascii() or len(token.split()) != 1:
            raise ValueError(f"{path} has no token")
        return token.decode("ascii")


async def _answered(response: httpx.Response) -> None:
    """Raises _Gone, and ValueError."""
    if response.status_code == GONE:
        raise _Gone
    try:
        await checked(response)
    except ValueError as error:
        if response.status_code not in (401, 403):
            raise
        hint = "the service account needs `list` and `watch` of endpointslices, discovery.k8s.io"
        raise ValueError(f"{hint}: {error}") from None


def _checked_event(event: dict[str, Any]) -> dict[str, Any]:
    """Raises _Gone, and ValueError."""
    kind, found = event.get("type"), event.get("object")
    if not isinstance(found, dict):
        raise ValueError(f"the Kubernetes API sent an event {kind!r} without an object")
    if kind == "ERROR":
        if found.get("code") == GONE:
            raise _Gone
        raise ValueError(f"the Kubernetes API ended a watch: {found.get('message')}")
    return event


def _apply(event: dict[str, Any], slices: EndpointSlices) -> bool:
    """Whether the slices have changed. Raises ValueError."""
    kind: object = event.get("type")
    found = event["object"]
    if kind in ("ADDED", "MODIFIED"):
        slices.put(found)
    elif kind == "DELETED":
        slices.remove(found)
    elif kind != "BOOKMARK":
        raise ValueError(f"the Kubernetes API sent an event of the unknown type {kind!r}")
    return kind != "BOOKMARK"


def _version(found: dict[str, Any]) -> str:
    version = metadata(found).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise ValueError("the Kubernetes API sent an object without a resourceVersion")
    return version


def _report(problem: str | None, unusable: Outage) -> None:
    if problem is None:
        unusable.ended()
    else:
        unusable.failed(problem)
