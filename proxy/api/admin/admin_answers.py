"""Answers of the administration, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from pydantic import Field

from proxy.access.store.audit_log import Verification
from proxy.api.admin.admin_bodies import (
    EXAMPLE,
    EXAMPLE_OF_MODELS,
    LimitsBody,
)
from proxy.api.openapi.responses import Answer, ListAnswer, PageAnswer
from proxy.domain.identity import Scope

AT = "2026-03-01T12:00:00Z"


class TenantAnswer(Answer):
    name: str = Field(examples=["acme"])
    limits: LimitsBody = Field(description="Those that are set.", examples=[EXAMPLE])
    of_models: dict[str, LimitsBody] = Field(examples=[EXAMPLE_OF_MODELS])
    weight: float = Field(
        description="Of its share where tenants compete for a model.", examples=[3.0]
    )
    max_priority: int | None = Field(
        description="The highest priority that its requests get; null: no ceiling of its own.",
        examples=[1],
    )
    records: bool = Field(description="Whether its requests and answers are recorded for replay.")
    is_active: bool = Field(examples=[True])
    created_at: datetime = Field(examples=[AT])


class KeyAnswer(Answer):
    """A key without its secret, which nobody can read."""

    id: str = Field(
        description="The public part of the key: `sk-<id>-…`.", examples=["k3x9q27bt0mz"]
    )
    tenant: str = Field(examples=["acme"])
    name: str = Field(examples=["batch jobs"])
    scopes: list[Scope] = Field(examples=[["chat", "models"]])
    models: list[str] = Field(examples=[["llama-*"]])
    limits: LimitsBody = Field(description="Those that are set.")
    max_priority: int | None = Field(
        description="The highest priority that its requests get; null: no ceiling of its own.",
        examples=[1],
    )
    created_at: datetime = Field(examples=[AT])
    expires_at: datetime | None
    revoked_at: datetime | None
    overlap_until: datetime | None = Field(
        description="Until when the key from before a rotation is accepted, too."
    )


class IssuedKeyAnswer(KeyAnswer):
    key: str = Field(
        description="The whole key. It is shown only this once.", examples=["sk-k3x9q27bt0mz-…"]
    )


class TenantList(PageAnswer):
    data: list[TenantAnswer]


class KeyList(PageAnswer):
    data: list[KeyAnswer]


class UsageRowAnswer(Answer):
    """Sums. `prompt_tokens` includes the cached ones, `output_tokens` those of reasoning."""

    day: date | None = Field(None, description="In UTC.", examples=["2026-03-01"])
    tenant: str | None = None
    key: str | None = Field(None, description="The key's id, or `jwt:` and `mtls:` with a name.")
    model: str | None = Field(None, examples=["demo"])
    requests: int = Field(examples=[12])
    errors: int = Field(examples=[1])
    prompt_tokens: int = Field(examples=[2040])
    cached_tokens: int = Field(examples=[512])
    output_tokens: int = Field(examples=[903])
    reasoning_tokens: int
    queue_s: float = Field(description="Seconds that requests waited in engines.", examples=[0.42])
    cost: float = Field(description="In the currency of the models' prices.")


class UsageList(ListAnswer):
    data: list[UsageRowAnswer]


class AuditEntryAnswer(Answer):
    number: int = Field(examples=[1])
    at: datetime = Field(examples=[AT])
    actor: str = Field(
        description="The id of the key, `jwt:…`, `mtls:…`, `cli:…` or `nobody`.",
        examples=["cli:ops"],
    )
    action: str = Field(examples=["tenants.create"])
    object: str = Field(examples=["tenants/acme"])
    before: dict[str, Any] | None
    after: dict[str, Any] | None = Field(examples=[{"name": "acme", "is_active": True}])
    chain_key: str = Field(
        description="The id of the key that made `mac`.", examples=["5f0c6a1b2d3e4f50"]
    )
    mac: str = Field(
        description="HMAC-SHA256 over this entry and the MAC of the one before.",
        examples=["9b…"],
    )


class AuditList(PageAnswer):
    data: list[AuditEntryAnswer]


class VerificationAnswer(Answer):
    ok: bool = Field(examples=[True])
    entries: int = Field(examples=[1])
    mac: str = Field(
        description="The MAC of the last entry; empty without entries.", examples=["9b…"]
    )
    problems: list[str]


def page(found: Iterable[Any], limit: int) -> dict[str, Any]:
    """A list of the first `limit` of one more that were looked for."""
    data = list(found)
    return {"object": "list", "data": data[:limit], "has_more": len(data) > limit}


def verification_body(found: Verification) -> dict[str, Any]:
    return {**asdict(found), "ok": found.ok, "problems": list(found.problems)}
