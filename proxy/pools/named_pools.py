"""The pools of Triton servers that TRITON_URL and models.yaml name. Made by `app`."""

from __future__ import annotations

from collections.abc import Mapping

from build_engines.models_file import ModelsFile, ModelsFileError
from build_engines.pool_entry import PoolEntry
from proxy.domain.endpoints import DEFAULT_POOL, Decisions, EndpointAddress
from proxy.domain.errors import LaunchError
from proxy.pools.choice import Policy
from proxy.pools.discovery import source_url
from proxy.pools.discovery.kubernetes import KubernetesService
from proxy.pools.discovery.source import InvalidSource
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
    entries, options = {} if found is None else found.pools, []
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
            options.append(_options(settings, DEFAULT_POOL, ours, environment))
        except InvalidSource as error:
            raise LaunchError(f"TRITON_URL: {error}") from None
    for name, entry in entries.items():
        try:
            options.append(_options(settings, name, entry, environment))
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
) -> PoolOptions:
    """Raises ModelsFileError, InvalidSource."""
    secret = settings.triton_secret_value
    if entry.secret_env is not None and not (secret := environment.get(entry.secret_env)):
        raise ModelsFileError(
            f"pools.{name}.secret_env: the environment variable {entry.secret_env} is not set"
        )
    source = source_url.parse(entry.endpoints)
    if isinstance(source, KubernetesService):
        source.find_api(environment)

    def connect(endpoint: EndpointAddress) -> TritonConnection:
        target = Target(
            endpoint.address, source.is_tls, entry.ca_file, secret, source.certified_name
        )
        return TritonConnection(target, max_age_s=settings.triton_connection_age_s)

    return PoolOptions(
        name=name,
        source=source,
        connect=connect,
        metrics_port=entry.metrics_port,
        policy=Policy(entry.routing),
        most_ejected=entry.max_ejected_percent / 100,
        probe_every_s=settings.probe_every_s,
        probe_timeout_s=settings.probe_timeout_s,
    )
