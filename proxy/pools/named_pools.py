"""The pools of Triton servers that TRITON_URL and models.yaml name. Made by `app`."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import assert_never

from build_engines.models_file import ModelsFile, ModelsFileError
from build_engines.pool_entry import PoolEntry
from proxy.domain.endpoints import DEFAULT_POOL, Decisions, EndpointAddress, EndpointSource
from proxy.domain.errors import LaunchError
from proxy.pools.choice import Policy
from proxy.pools.discovery import source_url
from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.etcd import EtcdPrefix
from proxy.pools.discovery.kubernetes import KubernetesApi, KubernetesService, in_cluster
from proxy.pools.discovery.source import StaticList
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
from proxy.pools.pool import PoolOptions
from proxy.pools.pool_set import PoolSet
from proxy.settings import Settings
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.triton.connection import TritonConnection
from proxy.triton.target import Target


def pool_set(
    settings: Settings,
    found: ModelsFile | None,
    environment: Mapping[str, str],
    counter: EndpointMetrics,
    decisions: Decisions,
) -> PoolSet:
    """The pools of models.yaml, and `default`, the one of TRITON_URL, unless models.yaml has it or
    only has models of other pools.

    Raises:
        LaunchError: TRITON_URL is wrong.
        ModelsFileError: a pool's endpoints are wrong, or its `secret_env` is not set; or
            TRITON_URL and models.yaml both say where the pool `default` is.
    """
    cluster, entries, options = in_cluster(environment), {} if found is None else found.pools, []
    if DEFAULT_POOL in entries and settings.triton_url is not None:
        raise ModelsFileError(
            "TRITON_URL and pools.default both say where the pool 'default' is: remove one of them"
        )
    if DEFAULT_POOL not in entries and (settings.triton_url is not None or _uses_default(found)):
        ours = PoolEntry.model_construct(
            endpoints=settings.triton_source,
            ca_file=settings.triton_ca_file,
            metrics_port=settings.triton_metrics_port,
            routing=settings.triton_routing,
        )
        try:
            options.append(_options(settings, DEFAULT_POOL, ours, environment, cluster))
        except InvalidSource as error:
            raise LaunchError(f"TRITON_URL: {error}") from None
    for name, entry in entries.items():
        try:
            options.append(_options(settings, name, entry, environment, cluster))
        except InvalidSource as error:
            raise ModelsFileError(f"pools.{name}.endpoints: {error}") from None
    return PoolSet(options, counter, decisions)


def _uses_default(found: ModelsFile | None) -> bool:
    """Whether a model may be in the pool `default`: one without deployments is."""
    if found is None or not found.pools:
        return True
    models = found.models.values()
    return any(
        not model.deployments or any(one.pool == DEFAULT_POOL for one in model.deployments)
        for model in models
    )


def _options(
    settings: Settings,
    name: str,
    entry: PoolEntry,
    environment: Mapping[str, str],
    cluster: KubernetesApi | None,
) -> PoolOptions:
    """Raises ModelsFileError, InvalidSource."""
    secret = settings.triton_secret_value
    if entry.secret_env is not None and not (secret := environment.get(entry.secret_env)):
        raise ModelsFileError(
            f"pools.{name}.secret_env: the environment variable {entry.secret_env} is not set"
        )
    url = source_url.parse(entry.endpoints)

    def connect(endpoint: EndpointAddress) -> TritonConnection:
        target = Target(endpoint.address, url.is_tls, entry.ca_file, secret, _certified_name(url))
        age_s = settings.triton_connection_age_s
        return TritonConnection(target, max_age_s=age_s)

    return PoolOptions(
        name=name,
        source=_source(url, cluster),
        connect=connect,
        metrics_port=entry.metrics_port,
        policy=Policy(entry.routing),
        most_ejected=entry.max_ejected_percent / 100,
    )


def _source(url: SourceUrl, cluster: KubernetesApi | None) -> EndpointSource:
    """Nothing is connected or read before the source is watched. Raises InvalidSource."""
    match url:
        case StaticListUrl():
            return StaticList(str(url), url.addresses)
        case DnsUrl():
            return DnsName(url)
        case FileUrl():
            return WatchedFile(url)
        case EtcdUrl():
            return EtcdPrefix(url)
        case KubernetesUrl():
            api = cluster if url.api_url is None else KubernetesApi(url=url.api_url)
            if api is None:
                raise InvalidSource(
                    f"{url}: this process runs in no pod of Kubernetes (KUBERNETES_SERVICE_HOST "
                    "is not set): add ?api=http://127.0.0.1:8001, as of kubectl proxy"
                )
            return KubernetesService(url, api)
        case _:
            assert_never(url)


def _certified_name(url: SourceUrl) -> str | None:
    """The name that certificates are issued for, where endpoints are known by their addresses."""
    match url:
        case DnsUrl():
            return url.name
        case KubernetesUrl():
            return f"{url.service}.{url.namespace}.svc"
    return None
