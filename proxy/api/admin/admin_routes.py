"""The routes of the administration: tenants, keys, usage and the audit log.

They need the store of keys, and import its libraries. Made by `app`, and for commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field, StringConstraints
from starlette.responses import JSONResponse, Response

from proxy.access.concurrency import ConcurrencyLimit
from proxy.access.store.audit_log import AuditLog
from proxy.access.store.records import IssuedKey, Keys, Tenants, view
from proxy.access.store.store import Store
from proxy.access.store.usage import Totals, Usage, UsagePeriod, as_csv
from proxy.api.admin import admin_answers as shown
from proxy.api.admin.admin_bodies import (
    KeyBody,
    KeyChanges,
    Rotation,
    TenantBody,
    TenantChanges,
    TenantName,
)
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import PLAIN, QueryParameters, TypedRoute, typed_router
from proxy.api.openapi.responses import BODY, CSV, JSON, answers, text
from proxy.api.pools.operator import actor
from proxy.domain.errors import InvalidRequest
from proxy.domain.identity import SHARED_TENANT, Caller, Scope, current_caller
from proxy.domain.key_records import KEY_FIELDS, TENANT_FIELDS

TAG = "administration"
Read = Callable[[str, str], None]
"""Notes for the audit log that this actor has read keys, or usage."""
TenantPath = Annotated[str, Path(min_length=1, description="The tenant's name.")]
KeyId = Annotated[str, Path(min_length=1, description="The key's id, from `sk-<id>-…`.")]
ATTACHED = {"Content-Disposition": 'attachment; filename="usage.csv"'}
NO_FIELDS: Mapping[str, Any] = {}
MOST_AT_ONCE = 1000
MOST_ROWS = 20_000  # of one report, which is made at once
USAGE_CSV = (
    "day,tenant,key,model,requests,errors,prompt_tokens,cached_tokens,output_tokens,"
    "reasoning_tokens,queue_s,cost\r\n2026-03-01,acme,k3x9q27bt0mz,demo,12,1,2040,512,903,0,0.42,"
    "0.0\r\n"
)
USAGE = answers(shown.UsageList, 400, 503, content={CSV: text(USAGE_CSV)})


Text = Annotated[str, StringConstraints(pattern=PLAIN, max_length=256)]
PageSize = Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]
GROUPS = "(day|tenant|key|model)"
OWN_GROUPS = "(day|model)"


class TenantsQuery(QueryParameters):
    after: Text | None = Field(None, description="The last name of the page before.")
    limit: PageSize = Field(100, description="How many at most.")


class KeysQuery(QueryParameters):
    tenant: TenantName | None = Field(None, description="Only this tenant's keys.")
    after: Text | None = Field(None, description="The last id of the page before.")
    limit: PageSize = Field(100, description="How many at most.")


class AuditQuery(QueryParameters):
    after: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        0, description="The last number of the page before."
    )
    limit: PageSize = Field(100, description="How many at most.")
    order: Literal["asc", "desc"] = Field("asc", description="`desc`: the newest first.")


class OwnUsageQuery(QueryParameters):
    first: date | None = Field(
        None, alias="from", description="First day, in UTC; default: the first of `to`'s month."
    )
    last: date | None = Field(None, alias="to", description="Last day, in UTC; default: today.")
    by: Annotated[str, StringConstraints(pattern=f"^{OWN_GROUPS}(,{OWN_GROUPS})*$")] = Field(
        "day,model", description="Columns to group by, separated by commas."
    )
    format: Literal["json", "csv"] = "json"

    @property
    def groups(self) -> Sequence[str]:
        return self.by.split(",")

    def of(self, caller: Caller) -> UsagePeriod:
        first, last = self._days()
        return UsagePeriod(first=first, last=last, tenant=caller.tenant, key=caller.key_id)

    def _days(self) -> tuple[date, date]:
        last = self.last or datetime.now(timezone.utc).date()
        first = self.first or last.replace(day=1)
        if first > last:
            raise InvalidRequest(f"'from' ({first}) is after 'to' ({last}).", param="from")
        return first, last


class UsageQuery(OwnUsageQuery):
    tenant: Text | None = Field(None, description="Only this tenant's usage.")
    key: Text | None = Field(None, description="Only the usage of the key with this id.")
    model: Text | None = Field(None, description="Only the usage of this model, by public name.")
    by: Annotated[str, StringConstraints(pattern=f"^{GROUPS}(,{GROUPS})*$")] = Field(
        "day,tenant,key,model", description="Columns to group by, separated by commas."
    )

    @property
    def period(self) -> UsagePeriod:
        first, last = self._days()
        return UsagePeriod(
            first=first, last=last, tenant=self.tenant, key=self.key, model=self.model
        )


def routers(
    store: Store, read: Read, bodies: BodyReader | None, *, most_rows: int | None = MOST_ROWS
) -> list[APIRouter]:
    """bodies: None where the routes are only called in this process. most_rows: of a report."""
    return [
        _tenants_routes(store.tenants, bodies),
        _keys_routes(store.keys, read, bodies),
        _usage_routes(store.usage, read, bodies, most_rows),
        _audit_routes(store.audit, bodies),
    ]


class Administration:
    """Calls the same routes without HTTP, as the operator `actor`. Reads are not recorded."""

    def __init__(self, store: Store, actor: str) -> None:
        self.store = store
        made = routers(store, lambda *_: None, None, most_rows=None)
        routes = [route for router in made for route in router.routes]
        self._routes = {route.name: route for route in routes if isinstance(route, TypedRoute)}
        scopes = frozenset({Scope.ADMIN})
        self._caller = Caller(tenant=SHARED_TENANT, key_id=actor, scopes=scopes)

    async def call(self, route: str, fields: Mapping[str, Any] = NO_FIELDS, **path: str) -> Any:
        """The answer as JSON, or text. fields: of the body or the query. Raises ProxyError."""
        current_caller.set(self._caller)
        answer = await self._routes[route].call(fields, path)
        text = bytes(answer.body).decode()
        return json.loads(text) if answer.media_type == JSON else text

    async def all(self, route: str, fields: Mapping[str, Any] = NO_FIELDS) -> list[Any]:
        """All pages of a list, whose entries are found by id or name."""
        found: list[Any] = []
        while True:
            after = {"after": found[-1].get("id", found[-1]["name"])} if found else {}
            page = await self.call(route, {"limit": MOST_AT_ONCE, **fields, **after})
            found += page["data"]
            if not page["has_more"]:
                return found


def _tenants_routes(tenants: Tenants, bodies: BodyReader | None) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/tenants", tag=TAG)

    @router.post("", responses=answers(shown.TenantAnswer, *BODY, 409))
    async def create_tenant(body: TenantBody) -> Response:
        """A new tenant. Its keys share its limits."""
        fields = body.record_fields(TENANT_FIELDS)
        return JSONResponse(view(await tenants.create(actor(), **fields)))

    @router.get("", responses=answers(shown.TenantList, 400, 503))
    async def list_tenants(query: Annotated[TenantsQuery, Query()]) -> Response:
        """Tenants, by name."""
        actor()
        found = await tenants.list(after=query.after or "", limit=query.limit + 1)
        return JSONResponse(shown.page(map(view, found), query.limit))

    @router.get("/{tenant}", responses=answers(shown.TenantAnswer, 503))
    async def show_tenant(tenant: TenantPath) -> Response:
        """One tenant."""
        actor()
        return JSONResponse(view(await tenants.show(tenant)))

    @router.patch("/{tenant}", responses=answers(shown.TenantAnswer, *BODY))
    async def update_tenant(tenant: TenantPath, body: TenantChanges) -> Response:
        """Changes the limits that are given; null removes one. Holds within a second."""
        changed = partial(body.changed, TENANT_FIELDS)
        return JSONResponse(view(await tenants.update(actor(), tenant, changed)))

    @router.delete("/{tenant}", responses=answers(shown.TenantAnswer, 409, 503))
    async def delete_tenant(tenant: TenantPath) -> Response:
        """Deletes a tenant whose keys are all revoked, and these keys. Its usage is kept."""
        return JSONResponse(view(await tenants.delete(actor(), tenant)))

    return router


def _keys_routes(keys: Keys, read: Read, bodies: BodyReader | None) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/keys", tag=TAG)

    @router.post("", responses=answers(shown.IssuedKeyAnswer, *BODY))
    async def create_key(body: KeyBody) -> Response:
        """A new key of a tenant. Only this answer has the key itself."""
        return _issued(await keys.create(actor(), **body.record_fields(KEY_FIELDS)))

    @router.get("", responses=answers(shown.KeyList, 400, 503))
    async def list_keys(query: Annotated[KeysQuery, Query()]) -> Response:
        """Keys, by id, revoked and expired ones too."""
        who = actor()
        found = await keys.list(tenant=query.tenant, after=query.after or "", limit=query.limit + 1)
        read(who, "keys")
        return JSONResponse(shown.page(map(view, found), query.limit))

    @router.get("/{key}", responses=answers(shown.KeyAnswer, 503))
    async def show_key(key: KeyId) -> Response:
        """One key, without its secret."""
        who, found = actor(), await keys.show(key)
        read(who, "keys")
        return JSONResponse(view(found))

    @router.patch("/{key}", responses=answers(shown.KeyAnswer, *BODY, 409))
    async def update_key(key: KeyId, body: KeyChanges) -> Response:
        """Changes what is given. Holds within a second, in every process."""
        changed = partial(body.changed, KEY_FIELDS)
        return JSONResponse(view(await keys.update(actor(), key, changed)))

    @router.post("/{key}/rotate", responses=answers(shown.IssuedKeyAnswer, *BODY, 409))
    async def rotate_key(key: KeyId, body: Rotation) -> Response:
        """A new secret under the same id. The key from before is accepted for the overlap."""
        return _issued(await keys.rotate(actor(), key, body.overlap))

    @router.post("/{key}/revoke", responses=answers(shown.KeyAnswer, 503))
    async def revoke_key(key: KeyId) -> Response:
        """Ends a key for good, within a second in every process."""
        return JSONResponse(view(await keys.revoke(actor(), key)))

    return router


def _issued(made: IssuedKey) -> Response:
    return JSONResponse(made.view)


def _usage_routes(
    usage: Usage, read: Read, bodies: BodyReader | None, most_rows: int | None
) -> APIRouter:
    router = typed_router(bodies)

    @router.get("/admin/v1/usage", tags=[TAG], responses=USAGE)
    async def report_usage(query: Annotated[UsageQuery, Query()]) -> Response:
        """Usage of all tenants by period, as JSON or CSV. The last second may be missing."""
        who, rows = actor(), await _rows(usage, query.period, query.groups, most_rows)
        read(who, "usage")
        return _report(rows, query.format)

    @router.get("/v1/usage", tags=["usage"], responses=USAGE)
    async def own_usage(query: Annotated[OwnUsageQuery, Query()]) -> Response:
        """What the key of this request has used. The last second may be missing."""
        period = query.of(current_caller.get())
        return _report(await _rows(usage, period, query.groups, most_rows), query.format)

    return router


async def _rows(
    usage: Usage, period: UsagePeriod, groups: Sequence[str], most: int | None
) -> Sequence[Totals]:
    rows = await usage.report(period, groups, limit=None if most is None else most + 1)
    if most is not None and len(rows) > most:
        raise InvalidRequest(
            f"The report has more than {most:,} rows: choose fewer days, or name less in "
            "'by' (`triton-openai usage` has no such limit).",
            param="by",
        )
    return rows


def _report(rows: Sequence[Totals], form: str) -> Response:
    if form == "csv":
        return Response(as_csv(rows), media_type=CSV, headers=ATTACHED)
    return JSONResponse({"object": "list", "data": rows})


def _audit_routes(audit: AuditLog, bodies: BodyReader | None) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/audit", tag=TAG)
    verifications = ConcurrencyLimit(1, what="verifications of the audit log")

    @router.get("", responses=answers(shown.AuditList, 400, 503))
    async def list_audit(query: Annotated[AuditQuery, Query()]) -> Response:
        """Changes and denied calls."""
        actor()
        if query.order == "desc":
            before = query.after or None
            found = await audit.list(before=before, limit=query.limit + 1, is_newest_first=True)
        else:
            found = await audit.list(after=query.after, limit=query.limit + 1)
        return JSONResponse(shown.page(found, query.limit))

    @router.get("/verify", responses=answers(shown.VerificationAnswer, 429, 503))
    async def verify_audit() -> Response:
        """Whether an entry was edited, deleted, moved or cut off at the end."""
        actor()
        with verifications.permits():
            found = await audit.verify()
        return JSONResponse(shown.verification_body(found))

    return router
