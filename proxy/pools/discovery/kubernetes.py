"""The ready pods of a Kubernetes service: its EndpointSlices are listed, then watched.

The protocol: "Efficient detection of changes", kubernetes.io/docs/reference/using-api/api-concepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import httpx
from pydantic import BaseModel, Field, RootModel

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery import json_watch
from proxy.pools.discovery.endpoint_address import host, joined
from proxy.pools.discovery.source import InvalidSource, Source

WATCH_S = 60  # then the API server ends a watch, and the next one begins where it ended
LATE_S = 10.0  # a watch that is silent for longer than WATCH_S and this is lost
PAGE_SLICES = 10  # of up to 100 endpoints by default, about 50 kB each
TOKEN_BYTES = 64_000
GONE = 410  # the API server no longer has the changes since our resource version
# Kubernetes mounts them into pods: "Accessing the Kubernetes API from a Pod", kubernetes.io.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FAMILIES = ("IPv4", "IPv6", "FQDN")

Text = Annotated[str, Field(min_length=1)]


class Conditions(BaseModel):
    """Conditions that are not reported count as ready and not terminating.

    `ready` alone does not do: it is true for terminating pods of a service that publishes
    addresses of pods that are not ready.
    """

    ready: bool | None = None
    terminating: bool | None = None


class Target(BaseModel):
    uid: str | None = None


class SliceEndpoint(BaseModel):
    """The addresses of one endpoint are interchangeable, so the first one is used."""

    addresses: Annotated[list[str], Field(min_length=1)]
    conditions: Conditions | None = None
    target: Target | None = Field(None, alias="targetRef")

    @property
    def is_ready(self) -> bool:
        found = self.conditions or Conditions()
        return found.ready is not False and found.terminating is not True


class SlicePort(BaseModel):
    name: str | None = None
    port: int | None = None


class Metadata(BaseModel):
    name: str = ""
    version: Text = Field(alias="resourceVersion")
    after: str | None = Field(None, alias="continue")


class Versioned(BaseModel):
    metadata: Metadata


class EndpointSlice(Versioned):
    family: Literal["IPv4", "IPv6", "FQDN"] = Field(alias="addressType")
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None

    def number(self, port: int | str) -> int:
        """The number of a port. Raises LookupError: the slice has none with this name."""
        if isinstance(port, int):
            return port
        ports = {each.name or "": each.port for each in self.ports or ()}
        if number := ports.get(port):
            return number
        names = ", ".join(sorted(ports)) or "none"
        raise LookupError(
            f"EndpointSlice {self.metadata.name} has no port named {port!r}; it has {names}"
        )


class Page(Versioned):
    items: list[EndpointSlice] | None = None


class Change(BaseModel):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: EndpointSlice


class Bookmark(BaseModel):
    type: Literal["BOOKMARK"]
    object: Versioned


class Status(BaseModel):
    code: int | None = None
    message: str | None = None


class Failure(BaseModel):
    type: Literal["ERROR"]
    object: Status


class Event(RootModel[Annotated[Change | Bookmark | Failure, Field(discriminator="type")]]):
    pass


def addresses_in(
    slices: Iterable[EndpointSlice], port: int | str, metrics_port: int | str | None
) -> tuple[list[EndpointAddress], str | None]:
    """One for each ready pod, and why endpoints of some slice cannot be used.

    Of a pod with several addresses, an IPv4 address. Raises ValueError: an address is none.
    """
    pods: dict[str, tuple[int, str, int | None]] = {}  # by uid, or by address without one
    problems = []
    for each in slices:
        ready = [one for one in each.endpoints or () if one.is_ready]
        try:
            number = each.number(port) if ready else 0
            metrics = each.number(metrics_port) if ready and metrics_port is not None else None
        except LookupError as error:
            problems.append(error.args[0])
            continue
        family = FAMILIES.index(each.family)
        for one in ready:
            given = one.addresses[0]
            address = joined(host(f"[{given}]" if ":" in given else given), number)
            pod = (one.target and one.target.uid) or address
            pods[pod] = min(pods.get(pod, (len(FAMILIES), "", None)), (family, address, metrics))
    found = [EndpointAddress(address, metrics) for _, address, metrics in pods.values()]
    return found, min(problems, default=None)


@dataclass(kw_only=True, eq=False)
class KubernetesService(Source):
    namespace: str
    service: str
    port: int | str  # of pods, or the name of a port of the EndpointSlices
    metrics_port: int | str | None
    api_url: str | None  # without a slash at its end; None before `find_api`
    token_file: Path | None = None  # read for each request, since tokens rotate
    ca_file: Path | None = None  # PEM file of the authorities to trust, read for each connection

    @property
    def certified_name(self) -> str:
        return f"{self.service}.{self.namespace}.svc"

    def find_api(self, environment: Mapping[str, str]) -> None:
        """Without an API in the URL, uses that of the cluster that this process is a pod of.

        Raises InvalidSource: the process runs in no cluster.
        """
        if self.api_url is not None:
            return
        name, port = (environment.get(f"KUBERNETES_SERVICE_{one}", "") for one in ("HOST", "PORT"))
        if not name or not port.isdigit():
            raise InvalidSource(
                f"{self.text}: this process runs in no pod of Kubernetes (KUBERNETES_SERVICE_HOST "
                "is not set): add ?api=http://127.0.0.1:8001, as of kubectl proxy"
            )
        self.api_url = f"https://{joined(name, int(port))}"
        self.token_file, self.ca_file = ACCOUNT / "token", ACCOUNT / "ca.crt"

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        """All ready pods, again after each change, until the API server forgets our version."""
        assert self.api_url is not None
        self.place = f"{self.api_url}: "
        slices: dict[str, EndpointSlice] = {}
        async with await json_watch.http_client(self.api_url, self.ca_file) as client:
            try:
                version = await self._list(client, slices)
                yield self._addresses(slices)
                while True:
                    async with aclosing(self._events(client, version)) as events:
                        async for event in events:
                            if isinstance(event, Failure):
                                if event.object.code == GONE:
                                    return
                                why = f"the Kubernetes API ended a watch: {event.object.message}"
                                raise ValueError(why)
                            version = event.object.metadata.version
                            if isinstance(event, Change):
                                _apply(event, slices)
                                yield self._addresses(slices)
                    await self.pause.wait()
            except json_watch.WrongStatus as error:
                if error.status == GONE:
                    return
                if error.status not in (401, 403):
                    raise
                need = "the service account needs `list` and `watch` of endpointslices"
                raise ValueError(f"{need}, discovery.k8s.io: {error}") from None

    def _addresses(self, slices: Mapping[str, EndpointSlice]) -> list[EndpointAddress]:
        found, self.problem = addresses_in(slices.values(), self.port, self.metrics_port)
        return found

    async def _list(self, client: httpx.AsyncClient, slices: dict[str, EndpointSlice]) -> str:
        """The resource version to watch from."""
        query = {"limit": str(PAGE_SLICES)}
        while True:
            page = await json_watch.answer(client, await self._request(client, query), Page)
            slices.update((each.metadata.name, each) for each in page.items or ())
            if not page.metadata.after:
                return page.metadata.version
            query["continue"] = page.metadata.after

    async def _events(
        self, client: httpx.AsyncClient, version: str
    ) -> AsyncGenerator[Change | Bookmark | Failure, None]:
        """Until the API server ends the watch."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            "resourceVersion": version,
        }
        request = await self._request(client, query)
        lines = json_watch.lines(client, request, Event, lasts_s=WATCH_S + LATE_S)
        async with aclosing(lines) as events:
            async for event in events:
                yield event.root

    async def _request(self, client: httpx.AsyncClient, query: dict[str, str]) -> httpx.Request:
        headers = {}
        if self.token_file is not None:
            token = await asyncio.to_thread(_token, self.token_file)
            headers["Authorization"] = f"Bearer {token}"
        return client.build_request(
            "GET",
            f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices",
            params={"labelSelector": f"kubernetes.io/service-name={self.service}", **query},
            headers=headers,
        )


def _apply(change: Change, slices: dict[str, EndpointSlice]) -> None:
    name = change.object.metadata.name
    if change.type == "DELETED":
        slices.pop(name, None)
    else:
        slices[name] = change.object


def _token(path: Path) -> str:
    """Raises OSError, and ValueError: the file has none."""
    with path.open("rb") as file:
        token = file.read(TOKEN_BYTES).strip()
    if not token or not token.isascii() or len(token.split()) != 1:
        raise ValueError(f"{path} has no token")
    return token.decode("ascii")
