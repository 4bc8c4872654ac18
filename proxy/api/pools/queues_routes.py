"""/admin/v1/queues: the streams that run and wait in each model's fair queue, by tenant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from proxy.api.openapi.responses import answers
from proxy.api.pools.operator import actor
from proxy.api.pools.pool_answers import QueueList
from proxy.domain.scheduling import (
    MOST_TENANTS_SHOWN,
    QueueState,
    Scheduler,
    TenantState,
)


def routes(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/queues", tags=["pools"])

    @router.get("", responses=answers(QueueList))
    async def list_queues() -> Response:
        """Queues with a capacity or with streams, by pool and model.

        Of each the tenants with the most streams, 50 at most.
        """
        actor()
        states = scheduler.states(tenants=MOST_TENANTS_SHOWN)
        return JSONResponse({"object": "list", "data": queue_bodies(states)})

    return router


def queue_bodies(states: Iterable[QueueState]) -> list[dict[str, Any]]:
    return [
        {**asdict(one), "tenants": [_tenant_body(each, one.running) for each in one.tenants]}
        for one in states
    ]


def _tenant_body(tenant: TenantState, running: int) -> dict[str, Any]:
    share = tenant.running / running if running else 0.0
    return {**asdict(tenant), "share": round(share, 6)}
