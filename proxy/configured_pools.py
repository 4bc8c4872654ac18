"""Settings and models.yaml -> the pools of Triton servers, and what operators change.

Called by `app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from build_engines.models_file import ModelsFile, ModelsFileError
from build_engines.pool_entry import PoolEntry
from proxy.domain.audit_trail import AuditTrail
from proxy.domain.endpoints import DEFAULT_POOL, Decisions, EndpointAddress
from proxy.domain.kserve import KserveBackend
from proxy.domain.log_level import LogLevel
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
from proxy.pools.memory_decisions import LoggedAudit, MemoryDecisions
from proxy.pools.pool import PoolOptions
from proxy.pools.pool_set import PoolSet
from proxy.pools.pooled_kserve import PooledKserve
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.telemetry.chosen_level import ChosenLevel
from proxy.triton.connection import TritonConnection
from proxy.triton.target import Target

if TYPE_CHECKING:
    from proxy.access.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What operators change while the proxy runs, and where it is kept."""

    pools: PoolSet
    kserve: KserveBackend
    decisions: Decisions
    audit: AuditTrail
    log_levels: ChosenLevel


def operations(
    settings: Settings,
    found: ModelsFile | None,
    environment: Mapping[str, str],
    counter: EndpointCounter,
    store: Store | None,
) -> Operations:
    """The pools, with decisions that the store keeps; without one they end with the proxy.

    Raises as `pool_set`.
    """
    set_level = partial(logs.set_level, has_content=settings.log_content)
    decisions = MemoryDecisions() if store is None else store.decisions
    pools = pool_set(settings, found, environment, counter, decisions)
    return Operations(
        pools=pools,
        kserve=PooledKserve(pools),
        decisions=decisions,
        audit=LoggedAudit() if store is None else store.audit_trail,
        log_levels=ChosenLevel(LogLevel(settings.log_level), set_level),
    )


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
    options = [_of_entry(settings, *each, environment, cluster) for each in entries.items()]
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
        moves_streams=settings.drain_moves_streams,
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
        moves_streams=settings.drain_moves_streams,
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
