"""GET /metrics/live: what `triton-openai top` shows, as server-sent events for the web page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.http.answer import SSE
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.live_status import LiveStatus
from proxy.api.pools.pool_bodies import Plans, deployment_bodies, endpoint_body
from proxy.api.pools.pools_routes import queue_bodies
from proxy.domain import identity
from proxy.domain.endpoints import Decisions, Pools
from proxy.domain.identity import current_caller
from proxy.domain.scheduling import MOST_TENANTS_SHOWN, Scheduler

MOST_VIEWERS = 50


def routes(status: LiveStatus) -> APIRouter:
    """Not in the OpenAPI document: its readers expect answers that end."""
    router = APIRouter(include_in_schema=False)
    viewers = ConcurrencyLimit(MOST_VIEWERS, what="viewers of its live status")

    @router.get("/metrics/live")
    async def live() -> Response:
        return LiveStream(status, viewers)

    return router


class LiveStream(Response):
    """Lives as long as its client. Raises RateLimited: there are too many viewers."""

    def __init__(self, status: LiveStatus, viewers: ConcurrencyLimit) -> None:
        super().__init__()
        self._status = status
        self._viewers = viewers
        self._is_operator = current_caller.get().may(identity.Scope.ADMIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = self._status.events(is_operator=self._is_operator)
        with self._viewers.permits():
            async with CancelOnDisconnect(receive), aclosing(events):
                head = {"type": "http.response.start", "status": 200, "headers": [*SSE.headers]}
                await send(head)
                async for each in events:
                    await send({"type": "http.response.body", "body": each, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})


def operators_part(
    pools: Pools, decisions: Decisions, plans: Callable[[], Plans], scheduler: Scheduler
) -> Mapping[str, Any]:
    """What the lists of /admin/v1/endpoints, …/deployments and …/queues have."""
    drained = decisions.drained
    return {
        "endpoints": [endpoint_body(each, drained) for each in pools.endpoints()],
        "deployments": [*deployment_bodies(plans(), decisions)],
        "queues": queue_bodies(scheduler.states(tenants=MOST_TENANTS_SHOWN)),
    }
