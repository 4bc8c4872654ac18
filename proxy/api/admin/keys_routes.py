"""/admin/v1/keys: create, list, show, update, rotate and revoke API keys."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.access.store.issued_key import IssuedKey
from triton_openai.proxy.access.store.key_administration import KeyAdministration
from triton_openai.proxy.access.store.record_rows import key_view
from triton_openai.proxy.api.admin import admin_operations, admin_queries
from triton_openai.proxy.api.admin.admin_answers import listed, page
from triton_openai.proxy.api.admin.admin_bodies import KeyBody, KeyChanges, Rotation
from triton_openai.proxy.api.admin.administrator import actor
from triton_openai.proxy.api.bodies import query_parameters
from triton_openai.proxy.api.bodies.body_reader import BodyReader

NOT_STORED = {"Cache-Control": "no-store"}  # of an answer that has a key


def routes(keys: KeyAdministration, *, bodies: BodyReader) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/keys")

    @router.post("", openapi_extra=admin_operations.CREATE_KEY.extra)
    async def create_key(http: Request) -> Response:
        """A new key of a tenant. Only this answer has the key itself."""
        who = actor()
        body = await bodies.read(http, KeyBody)
        return JSONResponse(_issued(await keys.create(who, body.to_domain())), headers=NOT_STORED)

    @router.get("", openapi_extra=admin_operations.LIST_KEYS.extra)
    async def list_keys(http: Request) -> Response:
        """Keys, by id, revoked and expired ones too."""
        actor()
        query = query_parameters.read(http, admin_queries.KeysQuery)
        found = await keys.list(tenant=query.tenant, after=query.after or "", limit=query.limit + 1)
        shown, has_more = page(found, query.limit)
        return JSONResponse(listed(map(key_view, shown), has_more=has_more))

    @router.get("/{key}", openapi_extra=admin_operations.SHOW_KEY.extra)
    async def show_key(key: str) -> Response:
        """One key, without its secret."""
        actor()
        return JSONResponse(key_view(await keys.show(key)))

    @router.patch("/{key}", openapi_extra=admin_operations.UPDATE_KEY.extra)
    async def update_key(key: str, http: Request) -> Response:
        """Changes what is given. Holds within a second, in every process."""
        who = actor()
        body = await bodies.read(http, KeyChanges)
        return JSONResponse(key_view(await keys.update(who, key, body.applied)))

    _add_ends(router, keys, bodies)
    return router


def _add_ends(router: APIRouter, keys: KeyAdministration, bodies: BodyReader) -> None:
    """Routes that end a key, or its secret."""

    @router.post("/{key}/rotate", openapi_extra=admin_operations.ROTATE_KEY.extra)
    async def rotate_key(key: str, http: Request) -> Response:
        """A new secret under the same id. The key from before is accepted for the overlap."""
        who = actor()
        body = await bodies.read(http, Rotation)
        made = await keys.rotate(who, key, body.overlap)
        return JSONResponse(_issued(made), headers=NOT_STORED)

    @router.post("/{key}/revoke", openapi_extra=admin_operations.REVOKE_KEY.extra)
    async def revoke_key(key: str) -> Response:
        """Ends a key for good, within a second in every process."""
        return JSONResponse(key_view(await keys.revoke(actor(), key)))


def _issued(made: IssuedKey) -> dict[str, Any]:
    return {**key_view(made.record), "key": made.key}
