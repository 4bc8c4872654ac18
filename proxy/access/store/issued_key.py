"""A new API key: its order, the key itself, and the record that is stored."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from datetime import datetime

from proxy.access.authentication import api_key
from proxy.domain.identity import NO_LIMITS, Limits, ModelPatterns, Scope
from proxy.domain.key_records import KeyRecord

ID_CHARACTERS = 12  # 62 random bits
SECRET_BYTES = 32
_ID_ALPHABET = string.ascii_lowercase + string.digits
EVERY_MODEL = ModelPatterns()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """What a new key shall be. expires_at: None for never."""

    tenant: str
    name: str
    scopes: frozenset[Scope]
    models: ModelPatterns = EVERY_MODEL
    limits: Limits = NO_LIMITS
    max_priority: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """key: `sk-<id>-<secret>`, which is shown once; only its digest is stored."""

    key: str
    record: KeyRecord


def new_key(key_id: str) -> str:
    """A key with 256 random bits, in base64url."""
    return f"sk-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"


def issued(order: KeyOrder, at: datetime, pepper: bytes) -> IssuedKey:
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(ID_CHARACTERS))
    key = new_key(key_id)
    record = KeyRecord(
        id=key_id,
        tenant=order.tenant,
        name=order.name,
        digest=api_key.digest(key.encode(), pepper),
        scopes=order.scopes,
        models=order.models,
        limits=order.limits,
        max_priority=order.max_priority,
        created_at=at,
        expires_at=order.expires_at,
        revoked_at=None,
        overlap_digest=None,
        overlap_until=None,
    )
    return IssuedKey(key=key, record=record)
