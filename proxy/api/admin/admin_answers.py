"""Answers of the administration, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from triton_openai.proxy.access.store.audit_chain import AuditEntry, Verification
from triton_openai.proxy.access.store.usage_reports import UsageTotals
from triton_openai.proxy.api.admin.admin_bodies import LimitsBody
from triton_openai.proxy.domain.identity import Scope


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TenantAnswer(Answer):
    name: str
    limits: LimitsBody = Field(description="Those that are set.")
    of_models: dict[str, LimitsBody]
    weight: float = Field(description="Of its share where tenants compete for a model.")
    max_priority: int | None = Field(
        description="The highest priority that its requests get; null: no ceiling of its own."
    )
    records: bool = Field(description="Whether its requests and answers are recorded for replay.")
    is_active: bool
    created_at: datetime


class KeyAnswer(Answer):
    """A key without its secret, which nobody can read."""

    id: str = Field(description="The public part of the key: `sk-<id>-…`.")
    tenant: str
    name: str
    scopes: list[Scope]
    models: list[str]
    limits: LimitsBody = Field(description="Those that are set.")
    max_priority: int | None = Field(
        description="The highest priority that its requests get; null: no ceiling of its own."
    )
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    overlap_until: datetime | None = Field(
        description="Until when the key from before a rotation is accepted, too."
    )


class IssuedKeyAnswer(KeyAnswer):
    key: str = Field(description="The whole key. It is shown only this once.")


class TenantList(Answer):
    object: Literal["list"]
    data: list[TenantAnswer]
    has_more: bool = Field(description="Whether more follow: ask again with `after`.")


class KeyList(Answer):
    object: Literal["list"]
    data: list[KeyAnswer]
    has_more: bool = Field(description="Whether more follow: ask again with `after`.")


class UsageRowAnswer(Answer):
    """Sums. `prompt_tokens` includes the cached ones, `output_tokens` those of reasoning."""

    day: date | None = Field(None, description="In UTC.")
    tenant: str | None = None
    key: str | None = Field(None, description="The key's id, or `jwt:` and `mtls:` with a name.")
    model: str | None = None
    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    queue_s: float = Field(description="Seconds that requests waited in engines.")
    cost: float = Field(description="In the currency of the models' prices.")


class UsageList(Answer):
    object: Literal["list"]
    data: list[UsageRowAnswer]


class AuditEntryAnswer(Answer):
    number: int
    at: datetime
    actor: str = Field(description="The id of the key, `jwt:…`, `mtls:…`, `cli:…` or `nobody`.")
    action: str
    object: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    chain_key: str = Field(description="The id of the key that made `mac`.")
    mac: str = Field(description="HMAC-SHA256 over this entry and the MAC of the one before.")


class AuditList(Answer):
    object: Literal["list"]
    data: list[AuditEntryAnswer]
    has_more: bool = Field(description="Whether more follow: ask again with `after`.")


class VerificationAnswer(Answer):
    ok: bool
    entries: int
    mac: str = Field(description="The MAC of the last entry; empty without entries.")
    problems: list[str]


T = TypeVar("T")


def page(found: Sequence[T], limit: int) -> tuple[Sequence[T], bool]:
    """The first `limit` of one more that were looked for, and whether more follow."""
    return found[:limit], len(found) > limit


def listed(data: Iterable[Any], **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": list(data), **more}


def usage_body(rows: Iterable[UsageTotals]) -> list[dict[str, Any]]:
    """Without the columns that a report sums over."""
    return [
        {
            name: value.isoformat() if isinstance(value, date) else value
            for name, value in asdict(row).items()
            if value is not None
        }
        for row in rows
    ]


def audit_body(entry: AuditEntry) -> Mapping[str, Any]:
    views = {name: _loaded(getattr(entry, name)) for name in ("before", "after")}
    return {**asdict(entry), "at": entry.at.isoformat().replace("+00:00", "Z"), **views}


def verification_body(found: Verification) -> dict[str, Any]:
    return {**asdict(found), "ok": found.ok, "problems": list(found.problems)}


def _loaded(view: str | None) -> Any:
    """The object; the text itself where somebody has changed it into something else."""
    if view is None:
        return None
    try:
        found = orjson.loads(view)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": view}
