"""API keys and tenants as stored, and the port that reads them.

The store implements KeySource. The authentication reads it, and turns records into a Caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from proxy.domain.identity import NO_LIMITS, Limits, ModelPatterns, Scope

EVERY_MODEL = ModelPatterns()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One API key `sk-<id>-<secret>`, without its secret. All times are aware, in UTC.

    id: the public part. name: what people call it. digest: HMAC-SHA256 of the whole key, with the
    pepper as its key. overlap_digest: the digest before a rotation, accepted until overlap_until.
    max_priority: the highest that it may ask for; None for no ceiling of its own.
    """

    id: str
    tenant: str
    name: str
    digest: bytes
    scopes: frozenset[Scope]
    models: ModelPatterns = EVERY_MODEL
    limits: Limits = NO_LIMITS
    max_priority: int | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    overlap_digest: bytes | None = None
    overlap_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    """of_models: limits of the tenant's use of single models, by public name. weight: of its share
    where tenants compete for rows. max_priority: the highest that its callers may ask for; None for
    no ceiling of its own. records: its requests and answers are recorded for replay.
    """

    name: str
    limits: Limits = NO_LIMITS
    of_models: dict[str, Limits] = field(default_factory=dict)
    weight: float = 1.0
    max_priority: int | None = None
    records: bool = False
    is_active: bool = True
    created_at: datetime


class KeySource(Protocol):
    """Reads keys and tenants. A method raises KeysUnavailable if the store cannot be reached."""

    async def generation(self) -> int:
        """Grows with every change of keys or tenants, in any process. A cheap read."""
        ...

    async def key(self, key_id: str) -> KeyRecord | None: ...

    async def tenant(self, name: str) -> TenantRecord | None: ...


class KeysUnavailable(Exception):
    """The store of keys cannot be reached. The message is for the log."""
