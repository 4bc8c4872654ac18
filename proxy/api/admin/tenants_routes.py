"""/admin/v1/tenants: create, list, show, update and delete tenants."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.access.store.record_rows import tenant_view
from triton_openai.proxy.access.store.tenant_administration import TenantAdministration
from triton_openai.proxy.api.admin import admin_operations, admin_queries
from triton_openai.proxy.api.admin.admin_answers import listed, page
from triton_openai.proxy.api.admin.admin_bodies import TenantBody, TenantChanges
from triton_openai.proxy.api.admin.administrator import actor
from triton_openai.proxy.api.bodies import query_parameters
from triton_openai.proxy.api.bodies.body_reader import BodyReader


def routes(tenants: TenantAdministration, *, bodies: BodyReader) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/tenants")

    @router.post("", openapi_extra=admin_operations.CREATE_TENANT.extra)
    async def create_tenant(http: Request) -> Response:
        """A new tenant. Its keys share its limits."""
        who = actor()
        body = await bodies.read(http, TenantBody)
        return JSONResponse(tenant_view(await tenants.create(who, body.name, **body.options)))

    @router.get("", openapi_extra=admin_operations.LIST_TENANTS.extra)
    async def list_tenants(http: Request) -> Response:
        """Tenants, by name."""
        actor()
        query = query_parameters.read(http, admin_queries.TenantsQuery)
        found = await tenants.list(after=query.after or "", limit=query.limit + 1)
        shown, has_more = page(found, query.limit)
        return JSONResponse(listed(map(tenant_view, shown), has_more=has_more))

    @router.get("/{tenant}", openapi_extra=admin_operations.SHOW_TENANT.extra)
    async def show_tenant(tenant: str) -> Response:
        """One tenant."""
        actor()
        return JSONResponse(tenant_view(await tenants.show(tenant)))

    @router.patch("/{tenant}", openapi_extra=admin_operations.UPDATE_TENANT.extra)
    async def update_tenant(tenant: str, http: Request) -> Response:
        """Changes the limits that are given; null removes one. Holds within a second."""
        who = actor()
        body = await bodies.read(http, TenantChanges)
        return JSONResponse(tenant_view(await tenants.update(who, tenant, body.applied)))

    @router.delete("/{tenant}", openapi_extra=admin_operations.DELETE_TENANT.extra)
    async def delete_tenant(tenant: str) -> Response:
        """Deletes a tenant whose keys are all revoked, and these keys. Its usage is kept."""
        return JSONResponse(tenant_view(await tenants.delete(actor(), tenant)))

    return router
