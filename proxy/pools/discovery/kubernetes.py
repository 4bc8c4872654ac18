"""The ready pods of a Kubernetes service: its EndpointSlices are listed, then watched.

The protocol: "Efficient detection of changes", kubernetes.io/docs/reference/using-api/api-concepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import host, joined
from proxy.pools.discovery.http_stream import (
    CONNECT_S,
    checked,
    http_client,
    json_lines,
    json_object,
    objects,
)
from proxy.pools.discovery.source import GrowingPause, Source
from proxy.pools.discovery.source_url import KubernetesUrl

MOST_SLICES = 1000
MOST_READY = 5000  # endpoints of all slices: more are not held
_FAMILIES = ("IPv4", "IPv6", "FQDN")
WATCH_S = 60  # then the API server ends a watch, and the next one begins where it ended
LATE_S = 10.0  # a watch that is silent for longer than WATCH_S and this is lost
PAGE_SLICES = 10  # of up to 100 endpoints by default, about 50 kB each
MOST_BYTES = 4_000_000  # of a page, and of an event
TOKEN_BYTES = 64_000
GONE = 410


@dataclass(frozen=True, slots=True, order=True)
class _Ready:
    """One ready endpoint of a slice. family: index in _FAMILIES. pod: its uid, or its address."""

    family: int
    address: str
    pod: str
    metrics_port: int = 0


class EndpointSlices:
    """port, metrics_port: of pods, or names of ports in the slices."""

    def __init__(self, port: int | str, metrics_port: int | str | None) -> None:
        self._port = port
        self._metrics_port = metrics_port
        self._ready: dict[str, tuple[_Ready, ...]] = {}
        self._problems: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """Why endpoints of some slice cannot be used."""
        return min(self._problems.values(), default=None)

    def put(self, found: Mapping[str, Any]) -> None:
        """Adds a slice, or replaces the one of its name.

        Raises ValueError: it is no EndpointSlice, or there are too many slices or endpoints.
        """
        name = _name(found)
        ready = self._endpoints(name, found)
        others = sum(len(each) for each in self._ready.values()) - len(self._ready.get(name, ()))
        if others + len(ready) > MOST_READY:
            raise ValueError(f"the service has more than {MOST_READY:,} endpoints")
        self._ready[name] = ready
        if len(self._ready) > MOST_SLICES:
            raise ValueError(f"the service has more than {MOST_SLICES:,} EndpointSlices")

    def remove(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no EndpointSlice."""
        self._ready.pop(_name(found), None)
        self._problems.pop(_name(found), None)

    def addresses(self) -> list[EndpointAddress]:
        """One for each pod: of a pod with several addresses, an IPv4 address."""
        pods: dict[str, _Ready] = {}
        for ready in self._ready.values():
            for each in ready:
                other = pods.get(each.pod)
                if other is None or each < other:
                    pods[each.pod] = each
        return [EndpointAddress(each.address, each.metrics_port or None) for each in pods.values()]

    def _endpoints(self, name: str, found: Mapping[str, Any]) -> tuple[_Ready, ...]:
        ready = [each for each in objects(found, "endpoints") if _is_ready(each)]
        self._problems.pop(name, None)
        if not ready:
            return ()
        port = self._number(name, self._port, found)
        if port is None:
            return ()
        metrics = self._metrics_port
        metrics_port = None if metrics is None else self._number(name, metrics, found)
        family = _family(found)
        return tuple(_ready(each, family, port, metrics_port) for each in ready)

    def _number(self, name: str, port: int | str, found: Mapping[str, Any]) -> int | None:
        if isinstance(port, int):
            return port
        ports = {str(each.get("name") or ""): each.get("port") for each in objects(found, "ports")}
        number = ports.get(port)
        if isinstance(number, int) and 0 < number < 65_536:
            return number
        names = ", ".join(sorted(ports)) or "none"
        self._problems[name] = f"EndpointSlice {name} has no port named {port!r}; it has {names}"
        return None


def metadata(found: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError: it is no object of Kubernetes."""
    value = found.get("metadata")
    if not isinstance(value, dict):
        raise ValueError("the Kubernetes API sent an object without metadata")
    return value


def _name(found: Mapping[str, Any]) -> str:
    name = metadata(found).get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the Kubernetes API sent an EndpointSlice without a name")
    return name


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Conditions that are not reported count as ready and not terminating.

    `ready` alone does not do: it is true for terminating pods of a service that publishes
    addresses of pods that are not ready.
    """
    conditions = endpoint.get("conditions") or {}
    if not isinstance(conditions, dict):
        raise ValueError("the Kubernetes API sent an endpoint whose conditions are no object")
    return conditions.get("ready") is not False and conditions.get("terminating") is not True


def _family(found: Mapping[str, Any]) -> int:
    family = found.get("addressType")
    if family not in _FAMILIES:
        raise ValueError(f"EndpointSlice {_name(found)} has the unknown addressType {family!r}")
    return _FAMILIES.index(family)


def _ready(endpoint: Mapping[str, Any], family: int, port: int, metrics_port: int | None) -> _Ready:
    """The addresses of one endpoint are interchangeable, so the first one is used."""
    addresses = endpoint.get("addresses")
    if not isinstance(addresses, list) or not addresses or not isinstance(addresses[0], str):
        raise ValueError("the Kubernetes API sent an endpoint without an address")
    found = addresses[0]
    address = joined(host(f"[{found}]" if ":" in found else found), port)
    target = endpoint.get("targetRef")
    uid = target.get("uid") if isinstance(target, dict) else None
    return _Ready(family, address, uid if isinstance(uid, str) else address, metrics_port or 0)


# Kubernetes mounts them into pods: "Accessing the Kubernetes API from a Pod", kubernetes.io.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesApi:
    """url: without a slash at its end. token_file: read for each request, since tokens rotate.

    ca_file: PEM file of the authorities to trust, read for each connection.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None


def in_cluster(environment: Mapping[str, str], account: Path = ACCOUNT) -> KubernetesApi | None:
    """The API of the cluster that this process is a pod of; Kubernetes sets both variables."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port.isdigit():
        return None
    return KubernetesApi(
        url=f"https://{joined(host, int(port))}",
        token_file=account / "token",
        ca_file=account / "ca.crt",
    )


class _Gone(Exception):
    """The API server no longer has the changes since our resource version."""


class KubernetesService(Source):
    def __init__(
        self, url: KubernetesUrl, api: KubernetesApi, *, pause: GrowingPause | None = None
    ) -> None:
        super().__init__(str(url), pause)
        self._url = url
        self._api = api
        self.place = f"{api.url}: "

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        """All ready pods, again after each change."""
        slices = EndpointSlices(self._url.port, self._url.metrics_port)
        async with await http_client(self._api.url, self._api.ca_file) as client:
            try:
                version = await self._list(client, slices)
                self.problem = slices.problem
                yield slices.addresses()
                while True:
                    async with aclosing(self._events(client, version)) as events:
                        async for event in events:
                            version = _version(event["object"])
                            if _apply(event, slices):
                                self.problem = slices.problem
                                yield slices.addresses()
                    await self.pause.wait()
            except _Gone:
                return

    async def _list(self, client: httpx.AsyncClient, slices: EndpointSlices) -> str:
        """The resource version to watch from."""
        query = {"limit": str(PAGE_SLICES)}
        while True:
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
