"""Settings and models.yaml -> the pools of Triton servers. Called by `app`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from triton_openai.build_engines.models_file import ModelsFileError
from triton_openai.build_engines.pool_entry import PoolEntry
from triton_openai.proxy.domain.endpoints import DEFAULT_POOL, Decisions, EndpointAddress
from triton_openai.proxy.pools.choice import ChoicePolicy, Policy
from triton_openai.proxy.pools.connection import Connect
from triton_openai.proxy.pools.discovery import source_url, sources
from triton_openai.proxy.pools.discovery.source_url import (
    DnsUrl,
    InvalidSource,
    KubernetesUrl,
    SourceUrl,
)
from triton_openai.proxy.pools.pool import PoolOptions
from triton_openai.proxy.pools.pool_set import PoolSet
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.settings import Settings
from triton_openai.proxy.triton.connection import TritonConnection
from triton_openai.proxy.triton.target import Target


def pool_set(
    settings: Settings,
    entries: Mapping[str, PoolEntry],
    environment: Mapping[str, str],
    decisions: Decisions | None,
) -> PoolSet:
    """The pools of models.yaml, and `default`, the one of TRITON_URL, unless models.yaml has it.

    Raises:
        LaunchError: TRITON_URL is wrong.
        ModelsFileError: a pool's endpoints are wrong, or its `secret_env` is not set.
    """
    options = [_of_entry(settings, *each, environment) for each in entries.items()]
    if DEFAULT_POOL not in entries:
        options.insert(0, _of_settings(settings))
    return PoolSet(options, decisions)


def _of_settings(settings: Settings) -> PoolOptions:
    try:
        url = source_url.parse(settings.triton_source)
        source = sources.endpoint_source(url)
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
    settings: Settings, name: str, entry: PoolEntry, environment: Mapping[str, str]
) -> PoolOptions:
    secret = settings.triton_secret_value
    if entry.secret_env is not None and not (secret := environment.get(entry.secret_env)):
        raise ModelsFileError(
            f"pools.{name}.secret_env: the environment variable {entry.secret_env} is not set"
        )
    try:
        url = source_url.parse(entry.endpoints)
        source = sources.endpoint_source(url)
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
