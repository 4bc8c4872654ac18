"""Parsed URL -> the source of a pool's endpoints. Called by `app`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from typing_extensions import assert_never

from proxy.domain.endpoints import EndpointAddress, EndpointSource
from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.etcd import EtcdPrefix
from proxy.pools.discovery.kubernetes import KubernetesApi, KubernetesService
from proxy.pools.discovery.source_url import (
    DnsUrl,
    EtcdUrl,
    FileUrl,
    InvalidSource,
    KubernetesUrl,
    SourceUrl,
    StaticListUrl,
)
from proxy.pools.discovery.watched_file import WatchedFile


class StaticList:
    """Implements domain.endpoints.EndpointSource."""

    def __init__(self, url: StaticListUrl) -> None:
        self._url = url

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        fresh = EndpointSet(str(self._url)).changed(self._url.addresses)
        if fresh is not None:
            yield fresh
        await asyncio.Event().wait()


def endpoint_source(url: SourceUrl, *, cluster: KubernetesApi | None = None) -> EndpointSource:
    """Nothing is connected or read before the source is watched.

    cluster: the API of the cluster that this process runs in; None outside of one. Raises
    InvalidSource: the source needs a cluster.
    """
    match url:
        case StaticListUrl():
            return StaticList(url)
        case DnsUrl():
            return DnsName(url)
        case FileUrl():
            return WatchedFile(url)
        case EtcdUrl():
            return EtcdPrefix(url)
        case KubernetesUrl():
            return KubernetesService(url, _api(url, cluster))
        case _:
            assert_never(url)


def _api(url: KubernetesUrl, cluster: KubernetesApi | None) -> KubernetesApi:
    if url.api_url is not None:
        return KubernetesApi(url=url.api_url)
    if cluster is None:
        raise InvalidSource(
            f"{url}: this process runs in no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not "
            "set): add ?api=http://127.0.0.1:8001, as of kubectl proxy"
        )
    return cluster
