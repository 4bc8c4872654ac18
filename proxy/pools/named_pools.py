"""The pools of Triton servers that TRITON_URL and models.yaml name. Made by `app`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build_engines.models_file import ModelsFile, ModelsFileError
from build_engines.pool_entry import PoolEntry
from proxy.domain.endpoints import DEFAULT_POOL, Decisions, EndpointAddress
from proxy.pools.choice import ChoicePolicy, Policy
from proxy.pools.connection import Connect
from proxy.pools.discovery import source_url, sources
from proxy.pools.discovery.kubernetes import KubernetesApi, in_cluster
from proxy.pools.discovery.source_url import (
    DnsUrl,
    InvalidSource,
    KubernetesUrl,
    SourceUrl,
)
from proxy.pools.endpoint_counter import EndpointCounter
from proxy.pools.pool import PoolOptions
from proxy.pools.pool_set import PoolSet
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from proxy.triton.connection import TritonConnection
from proxy.triton.target import Target


def pool_set(
    settings: Settings,
    found: ModelsFile | None,
    environment: Mapping[str, str],
    counter: EndpointCounter,
    decisions: Decisions,
) -> PoolSet:
    """The pools of models.yaml, and `default`, the one of TRITON_URL, unless models.yaml has it or
    only has models of other pools.

    Raises:
        LaunchError: TRITON_URL is wrong.
        ModelsFileError: a pool's endpoints are wrong, or its `secret_env` is not set; or
            TRITON_URL and models.yaml both say where the pool `default` is.
    """
    cluster, entries = _cluster(environment), {} if found is None else found.pools
    options = [
        _of_entry(settings, name, entry, environment, cluster) for name, entry in entries.items()
    ]
    if DEFAULT_POOL not in entries:
        if settings.triton_url is not None or _uses_default(found):
            options.insert(0, _of_settings(settings, cluster))
    elif settings.triton_url is not None:
        raise ModelsFileError(
            "TRITON_URL and pools.default both say where the pool 'default' is: remove one of them"
        )
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


def _cluster(environment: Mapping[str, str]) -> KubernetesApi | None:
    """The API of the cluster that this process is a pod of; Kubernetes sets both variables."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    return in_cluster(host, int(port)) if host and port.isdigit() else None


def _of_settings(settings: Settings, cluster: KubernetesApi | None) -> PoolOptions:
    try:
        url = source_url.parse(settings.triton_source)
        source = sources.endpoint_source(url, cluster=cluster)
    except InvalidSource as error:
        raise LaunchError(f"TRITON_URL: {error}") from None
    connect = _connect(settings, url, settings.triton_ca_file, settings.triton_secret_value)
    return PoolOptions(
        name=DEFAULT_POOL,
        source=source,
        connect=connect,
        metrics_port=settings.triton_metrics_port,
        choice=ChoicePolicy(policy=Policy(settings.triton_routing)),
    )


def _of_entry(
    settings: Settings,
    name: str,
    entry: PoolEntry,
    environment: Mapping[str, str],
    cluster: KubernetesApi | None,
) -> PoolOptions:
    secret = settings.triton_secret_value
    if entry.secret_env is not None and not (secret := environment.get(entry.secret_env)):
        raise ModelsFileError(
            f"pools.{name}.secret_env: the environment variable {entry.secret_env} is not set"
        )
    try:
        url = source_url.parse(entry.endpoints)
        source = sources.endpoint_source(url, cluster=cluster)
    except InvalidSource as error:
        raise ModelsFileError(f"pools.{name}.endpoints: {error}") from None
    return PoolOptions(
        name=name,
        source=source,
        connect=_connect(settings, url, entry.ca_file, secret),
        metrics_port=entry.metrics_port,
        choice=ChoicePolicy(policy=Policy(entry.routing)),
        most_ejected=entry.max_ejected_percent / 100,
    )


def _connect(
    settings: Settings, url: SourceUrl, ca_file: Path | None, secret: str | None
) -> Connect:
    def connect(endpoint: EndpointAddress) -> TritonConnection:
        target = Target(endpoint.address, url.is_tls, ca_file, secret, _certified_name(url))
        age_s = settings.triton_connection_age_s
        return TritonConnection(target, settings.triton_transport, max_age_s=age_s)

    return connect


def _certified_name(url: SourceUrl) -> str | None:
    """The name that certificates are issued for, where endpoints are known by their addresses."""
    match url:
        case DnsUrl():
            return url.name
        case KubernetesUrl():
            return f"{url.service}.{url.namespace}.svc"
    return None
