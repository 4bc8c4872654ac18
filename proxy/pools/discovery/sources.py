"""Parsed URL -> the source of a pool's endpoints. Called by `app`."""

from __future__ import annotations

from triton_openai.proxy.domain.endpoints import EndpointSource
from triton_openai.proxy.pools.discovery.dns import DnsName
from triton_openai.proxy.pools.discovery.kubernetes_api import KubernetesApi
from triton_openai.proxy.pools.discovery.source_url import (
    DnsUrl,
    EtcdUrl,
    FileUrl,
    InvalidSource,
    KubernetesUrl,
    SourceUrl,
    StaticListUrl,
)
from triton_openai.proxy.pools.discovery.static_list import StaticList
from triton_openai.proxy.pools.discovery.watched_file import WatchedFile


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
        case KubernetesUrl() | EtcdUrl():
            raise InvalidSource(f"{url}: this source is not implemented yet")
