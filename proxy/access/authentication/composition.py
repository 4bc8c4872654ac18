"""Makes the authenticator that the settings ask for. Called by `app`."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_network
from typing import TYPE_CHECKING

from proxy.access.authentication.authenticator import Authenticator, Sources
from proxy.access.authentication.known_keys import KnownKeys
from proxy.access.authentication.trusted_front import TrustedFront
from proxy.domain.identity import ALL_SCOPES, SHARED_TENANT, Caller, Scope
from proxy.domain.key_records import KeySource
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from proxy.settings.group import secret_value
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.access.authentication.signing_keys import SigningKeys
    from proxy.access.authentication.tokens import Tokens


def authenticator(
    settings: Settings, source: KeySource | None, metrics: Metrics
) -> Authenticator | None:
    """None if every caller may do everything. source: the store of keys, if there is one.

    Raises:
        LaunchError: the settings have a pepper, and there is no store.
    """
    if not settings.is_authenticated:
        return None
    sources = Sources(
        fixed=_fixed(settings),
        keys=_keys(settings, source, metrics),
        front=_front(settings),
        front_scopes=frozenset(map(Scope, settings.client_name_scopes)),
    )
    if settings.jwt_issuer is not None:
        signing_keys, tokens = _tokens(settings, settings.jwt_issuer, metrics)
        sources = replace(sources, signing_keys=signing_keys, tokens=tokens)
    return Authenticator(sources)


def _fixed(settings: Settings) -> dict[bytes, Caller]:
    found = {}
    for secret, key_id, scopes in (
        (settings.metrics_key, "METRICS_KEY", frozenset({Scope.METRICS})),
        (settings.api_key, "API_KEY", ALL_SCOPES),
    ):
        if (value := secret_value(secret)) is not None:
            caller = Caller(tenant=SHARED_TENANT, key_id=key_id, scopes=scopes, is_shared=True)
            found[sha256(value.encode()).digest()] = caller
    return found


def _keys(settings: Settings, source: KeySource | None, metrics: Metrics) -> KnownKeys | None:
    pepper = secret_value(settings.key_pepper)
    if pepper is None:
        return None
    if source is None:
        raise LaunchError("KEY_PEPPER is set, and there is no store of keys")
    up = metrics.authentication_source_up.labels("store")
    return KnownKeys(source, pepper.encode(), report=up.set)


def _tokens(settings: Settings, issuer: str, metrics: Metrics) -> tuple[SigningKeys, Tokens]:
    from proxy.access.authentication.signing_keys import KeySetSource, SigningKeys
    from proxy.access.authentication.tokens import TokenRules, Tokens

    source = KeySetSource(issuer, settings.jwt_jwks_url)
    up = metrics.authentication_source_up.labels("issuer")
    keys = SigningKeys(source.fetch, clock=time.monotonic, report=up.set)
    rules = TokenRules(
        issuer=issuer,
        audiences=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        tenant_claim=settings.jwt_tenant_claim,
        scope_claim=settings.jwt_scope_claim,
        priority_claim=settings.jwt_priority_claim,
    )
    return keys, Tokens(rules, keys)


def _front(settings: Settings) -> TrustedFront | None:
    if settings.client_name_header is None:
        return None
    networks = tuple(map(ip_network, settings.trusted_fronts))
    return TrustedFront(networks, settings.client_name_header.lower())
