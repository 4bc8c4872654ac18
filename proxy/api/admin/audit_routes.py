"""/admin/v1/audit: the audit log, and whether it is as it was written."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.access.concurrency import ConcurrencyLimit
from triton_openai.proxy.access.store.audit_log import AuditLog
from triton_openai.proxy.api.admin import admin_operations, admin_queries
from triton_openai.proxy.api.admin.admin_answers import audit_body, listed, page, verification_body
from triton_openai.proxy.api.admin.administrator import actor
from triton_openai.proxy.api.bodies import query_parameters


def routes(audit: AuditLog) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/audit")
    verifications = ConcurrencyLimit(1, what="verifications of the audit log")

    @router.get("", openapi_extra=admin_operations.LIST_AUDIT.extra)
    async def list_audit(http: Request) -> Response:
        """Changes and denied calls, the oldest first."""
        actor()
        query = query_parameters.read(http, admin_queries.AuditQuery)
        found = await audit.list(after=query.after, limit=query.limit + 1)
        shown, has_more = page(found, query.limit)
        return JSONResponse(listed(map(audit_body, shown), has_more=has_more))

    @router.get("/verify", openapi_extra=admin_operations.VERIFY_AUDIT.extra)
    async def verify_audit() -> Response:
        """Whether an entry was edited, deleted, moved or cut off at the end."""
        actor()
        with verifications.permits():
            found = await audit.verify()
        return JSONResponse(verification_body(found))

    return router
