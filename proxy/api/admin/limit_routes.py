"""/admin/v1/limits: what a tenant and its use of models, or a key, have used of their limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from proxy.access.limits.caller_meters import MeteredCallers, Unit
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.store.store import Store
from proxy.api.admin.admin_bodies import TenantName
from proxy.api.admin.admin_routes import Text
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import QueryParameters, typed_router
from proxy.api.openapi.responses import Answer, ListAnswer, answers
from proxy.api.pools.operator import actor
from proxy.domain.errors import InvalidRequest
from proxy.domain.identity import NO_LIMITS, Caller, Limits
from proxy.domain.model import NANOS
from proxy.state.meters import MeterKind

MOST_MODELS = 100  # of one answer, which is made at once


class LimitsQuery(QueryParameters):
    tenant: TenantName | None = Field(None, description="The tenant's name.")
    key: Text | None = Field(None, description="Instead of a tenant, the key's id.")


class LimitAnswer(Answer):
    key: str | None = Field(description="The key's id; null: of a tenant.", examples=[None])
    model: str | None = Field(description="Null: of every model.", examples=["demo"])
    limit: str = Field(description="Its name.", examples=["tokens_per_day"])
    most: float = Field(examples=[1_000_000])
    used: float = Field(
        description="In its time, at present. Of `requests_per_second`: of its burst.",
        examples=[420],
    )
    reset_s: float = Field(description="Until all of it can be used again.", examples=[86_400])


class LimitList(ListAnswer):
    data: list[LimitAnswer] = Field(
        description=f"Those that are set; of models, those of the first {MOST_MODELS}."
    )


def routes(store: Store, limiter: RequestLimiter, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/limits", tag="administration")
    callers = MeteredCallers(limiter.usage)  # its own: those of requests hold other limits together

    @router.get("", responses=answers(LimitList, 400, 503))
    async def show_limits(query: Annotated[LimitsQuery, Query()]) -> Response:
        """What a tenant and its use of single models, or a key, have used of their limits."""
        actor()
        if (query.tenant is None) == (query.key is None):
            raise InvalidRequest("Name a tenant or a key.", param="tenant")
        limited: list[tuple[str | None, str | None, Limits]]
        if query.key is not None:
            key = await store.keys.show(query.key)
            name, limited = key.tenant, [(key.id, None, key.limits)]
        else:
            tenant = await store.tenants.show(query.tenant or "")
            models = islice(sorted(tenant.of_models.items()), MOST_MODELS)
            name = tenant.name
            limited = [(None, None, tenant.limits), *((None, *each) for each in models)]
        data = [
            {"key": of_key, "model": model, **each}
            for of_key, model, limits in limited
            if limits != NO_LIMITS
            async for each in used(name, of_key, model, limits)
        ]
        return JSONResponse({"object": "list", "data": data})

    async def used(
        tenant: str, key: str | None, model: str | None, limits: Limits
    ) -> AsyncIterator[dict[str, Any]]:
        caller = Caller(
            tenant=tenant,
            key_id=key or "",
            scopes=frozenset(),
            tenant_limits=NO_LIMITS if key or model else limits,
            key_limits=limits if key else NO_LIMITS,
            of_models={model: limits} if model else {},
        )
        await asyncio.sleep(0)  # a ledger in memory waits for nothing
        meters = await callers.meters(caller, model or "")
        standings = (await limiter.look_at(meters)) if meters.meters else ()
        for meter, unit, (left, reset_us) in zip(
            meters.meters, meters.units, standings, strict=True
        ):
            one = NANOS if unit is Unit.COST else 1
            name = meter.name.partition(".")[2]
            yield {
                "limit": name,
                "most": limits.burst if meter.kind is MeterKind.RATE else getattr(limits, name),
                "used": max(meter.limit - left, 0) / one,
                "reset_s": reset_us / 1e6,
            }

    return router
