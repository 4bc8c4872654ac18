"""Keys and tenants as rows of the tables, and as administrators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy.engine import Row

from proxy.domain.identity import NO_LIMITS, Limits, ModelPatterns, Scope
from proxy.domain.key_records import KeyRecord, TenantRecord

NONE = asdict(NO_LIMITS)
SHOWN = ("id", "tenant", "name", "scopes", "models", "limits", "max_priority")
TIMES = ("created_at", "expires_at", "revoked_at", "overlap_until")


def key_row(key: KeyRecord) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "digest": key.digest,
        "scopes": _scopes(key),
        "models": list(key.models.patterns),
        "limits": limits_view(key.limits),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "overlap_digest": key.overlap_digest,
        "overlap_until": key.overlap_until,
        "max_priority": key.max_priority,
    }


def key_of(row: Row[Any]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        digest=row.digest,
        scopes=frozenset(Scope(scope) for scope in row.scopes),
        models=ModelPatterns(patterns=tuple(row.models)),
        limits=Limits(**row.limits),
        max_priority=row.max_priority,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        overlap_digest=row.overlap_digest,
        overlap_until=row.overlap_until,
    )


def tenant_row(tenant: TenantRecord) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "limits": limits_view(tenant.limits),
        "of_models": _limits_of_models(tenant),
        "weight": tenant.weight,
        "max_priority": tenant.max_priority,
        "records": tenant.records,
        "is_active": tenant.is_active,
        "created_at": tenant.created_at,
    }


def tenant_of(row: Row[Any]) -> TenantRecord:
    return TenantRecord(
        name=row.name,
        limits=Limits(**row.limits),
        of_models={model: Limits(**limits) for model, limits in row.of_models.items()},
        weight=row.weight,
        max_priority=row.max_priority,
        records=row.records,
        is_active=row.is_active,
        created_at=row.created_at,
    )


def key_view(key: KeyRecord) -> dict[str, Any]:
    """The key without its digests, for answers and the audit log. Values are JSON's."""
    row = key_row(key)
    return {**{name: row[name] for name in SHOWN}, **{name: _iso(row[name]) for name in TIMES}}


def tenant_view(tenant: TenantRecord) -> dict[str, Any]:
    return {**tenant_row(tenant), "created_at": _iso(tenant.created_at)}


def limits_view(limits: Limits) -> dict[str, float]:
    """Only the limits that are set."""
    return {name: value for name, value in asdict(limits).items() if value != NONE[name]}


def _limits_of_models(tenant: TenantRecord) -> Mapping[str, Any]:
    return {model: limits_view(limits) for model, limits in sorted(tenant.of_models.items())}


def _scopes(key: KeyRecord) -> list[str]:
    return sorted(scope.value for scope in key.scopes)


def _iso(time: Any) -> str | None:
    """With milliseconds left out where there are none, and Z for UTC."""
    return None if time is None else time.isoformat().replace("+00:00", "Z")
