"""Answers of the administration, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from pydantic import Field

from proxy.access.store.audit_log import Verification
from proxy.api.admin.admin_bodies import with_fields
from proxy.api.openapi.responses import Answer, ListAnswer, PageAnswer
from proxy.domain.key_records import KEY_FIELDS, TENANT_FIELDS

AT = "2026-03-01T12:00:00Z"


@with_fields(TENANT_FIELDS, "answer")
class TenantAnswer(Answer):
    pass


@with_fields(KEY_FIELDS, "answer")
class KeyAnswer(Answer):
    """A key without its secret, which nobody can read."""


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
