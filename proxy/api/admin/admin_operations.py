"""Descriptions of the administration's routes for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from triton_openai.proxy.api.admin import admin_answers as answers
from triton_openai.proxy.api.admin import admin_bodies as bodies
from triton_openai.proxy.api.admin import admin_queries as queries
from triton_openai.proxy.api.openapi.operation import BODY, CSV, JSON, Content, Operation

TAG = "administration"
STORE = (400, 503)
AT = "2026-03-01T12:00:00Z"
LIMITS = {"requests_per_minute": 60, "tokens_per_day": 1_000_000}
TENANT: dict[str, Any] = {
    "name": "acme",
    "limits": LIMITS,
    "of_models": {"demo": {"concurrent_requests": 4}},
    "weight": 3.0,
    "max_priority": 1,
    "records": False,
    "is_active": True,
    "created_at": AT,
}
KEY: dict[str, Any] = {
    "id": "k3x9q27bt0mz",
    "tenant": "acme",
    "name": "batch jobs",
    "scopes": ["chat", "models"],
    "models": ["llama-*"],
    "limits": {},
    "max_priority": -1,
    "created_at": AT,
    "expires_at": None,
    "revoked_at": None,
    "overlap_until": None,
}
ISSUED = {**KEY, "key": f"sk-{KEY['id']}-…"}
USAGE: dict[str, Any] = {
    "day": "2026-03-01",
    "tenant": "acme",
    "key": KEY["id"],
    "model": "demo",
    "requests": 12,
    "errors": 1,
    "prompt_tokens": 2040,
    "cached_tokens": 512,
    "output_tokens": 903,
    "reasoning_tokens": 0,
    "queue_s": 0.42,
    "cost": 0.0,
}
ENTRY = {
    "number": 1,
    "at": AT,
    "actor": "cli:ops",
    "action": "tenants.create",
    "object": "tenants/acme",
    "before": None,
    "after": TENANT,
    "chain_key": "5f0c6a1b2d3e4f50",
    "mac": "9b…",
}
VERIFIED = {"ok": True, "entries": 1, "mac": "9b…", "problems": []}
NAMES = {"tenant": "The tenant's name.", "key": "The key's id, from `sk-<id>-…`."}
CSV_EXAMPLE = f"{','.join(USAGE)}\r\n{','.join(map(str, USAGE.values()))}\r\n"


def _gives(body: type[BaseModel], example: Any) -> dict[str, Content]:
    return {JSON: Content(body=body, example=example)}


def _page(body: type[BaseModel], example: Any, query: type[BaseModel]) -> Operation:
    example = {"object": "list", "data": [example], "has_more": False}
    return Operation(tag=TAG, gives=_gives(body, example), query=query, errors=STORE)


def _change(
    takes: type[BaseModel],
    request: Any,
    gives: type[BaseModel],
    example: Any,
    refusals: tuple[int, ...],
) -> Operation:
    return Operation(
        tag=TAG,
        takes=takes,
        requests={"example": request},
        gives=_gives(gives, example),
        path_parameters=NAMES,
        errors=(*BODY, *refusals),
    )


def _named(gives: type[BaseModel], example: Any, *refusals: int) -> Operation:
    """Of one tenant or key, without a body."""
    return Operation(
        tag=TAG, gives=_gives(gives, example), path_parameters=NAMES, errors=(503, *refusals)
    )


def _usage(query: type[BaseModel], tag: str, columns: tuple[str, ...]) -> Operation:
    row = {name: value for name, value in USAGE.items() if name in columns or name not in NAMES}
    return Operation(
        tag=tag,
        query=query,
        gives={
            **_gives(answers.UsageList, {"object": "list", "data": [row]}),
            CSV: Content(body=None, example=CSV_EXAMPLE),
        },
        errors=STORE,
    )


TENANT_FIELDS = ("name", "limits", "of_models", "weight", "max_priority", "records")
TENANT_BODY = {name: TENANT[name] for name in TENANT_FIELDS}
CREATE_TENANT = _change(bodies.TenantBody, TENANT_BODY, answers.TenantAnswer, TENANT, (409,))
LIST_TENANTS = _page(answers.TenantList, TENANT, queries.TenantsQuery)
SHOW_TENANT = _named(answers.TenantAnswer, TENANT)
UPDATE_TENANT = _change(
    bodies.TenantChanges, {"limits": {"tokens_per_day": None}}, answers.TenantAnswer, TENANT, ()
)
DELETE_TENANT = _named(answers.TenantAnswer, TENANT, 409)

KEY_FIELDS = ("tenant", "name", "scopes", "models", "limits", "max_priority")
KEY_BODY = {name: KEY[name] for name in KEY_FIELDS}
CREATE_KEY = _change(bodies.KeyBody, KEY_BODY, answers.IssuedKeyAnswer, ISSUED, ())
LIST_KEYS = _page(answers.KeyList, KEY, queries.KeysQuery)
SHOW_KEY = _named(answers.KeyAnswer, KEY)
UPDATE_KEY = _change(bodies.KeyChanges, {"name": "nightly batch"}, answers.KeyAnswer, KEY, (409,))
ROTATE_KEY = _change(bodies.Rotation, {"overlap_s": 3600}, answers.IssuedKeyAnswer, ISSUED, (409,))
REVOKE_KEY = _named(answers.KeyAnswer, {**KEY, "revoked_at": AT})

REPORT_USAGE = _usage(queries.UsageQuery, TAG, ("tenant", "key", "model"))
OWN_USAGE = _usage(queries.OwnUsageQuery, "usage", ("model",))
LIST_AUDIT = _page(answers.AuditList, ENTRY, queries.AuditQuery)
VERIFY_AUDIT = Operation(
    tag=TAG, gives=_gives(answers.VerificationAnswer, VERIFIED), errors=(429, 503)
)
