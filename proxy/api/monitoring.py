"""Routes for health checks and Prometheus metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.api.http.accepted import weight
from proxy.api.openapi.responses import Answer, answers, text
from proxy.domain.errors import ErrorCode, LimitsUnavailable, ModelUnavailable, ServiceError
from proxy.domain.health import Concern
from proxy.models.registry import Registry
from proxy.state.meters import Ledger, OutageMode
from proxy.telemetry.metrics import OPEN_METRICS, Metrics


class Live(Answer):
    status: Literal["live"]


class Ready(Answer):
    """concerns: what is wrong, though requests are still served.

    ledger: what is done with limits while their shared state cannot be reached.
    """

    status: Literal["ready"]
    concerns: list[str] | None = None
    ledger: Literal["share", "open"] | None = None


PLAIN = "text/plain"
READY = answers(Ready, 503)
EXAMPLE = 'proxy_requests_active{model="demo"} 2.0'
METRICS = {PLAIN: text(EXAMPLE), OPEN_METRICS: text(f"{EXAMPLE}\n# EOF")}


def routes(
    registry: Registry,
    metrics: Metrics,
    ledger: Ledger,
    concerns: Callable[[], Sequence[Concern]] = tuple,
) -> APIRouter:
    """concerns: what is wrong with other parts than Triton and the models."""
    router, exposing = APIRouter(), asyncio.Lock()

    @router.get("/health/live", tags=["health"], responses=answers(Live))
    async def live() -> Response:
        """200 while the process can answer."""
        return JSONResponse({"status": "live"})

    @router.get("/ping", tags=["health"], name="ping", summary="Ready", responses=READY)
    @router.get(
        "/health", tags=["health"], name="ready_at_health", summary="Ready", responses=READY
    )
    @router.get("/health/ready", tags=["health"], responses=READY)
    async def ready() -> Response:
        """200 while a Triton and a model are ready and the tensor contract fits, else 503.

        While the shared state of limits cannot be reached, the body has `ledger`, or the status is
        503 if nothing is let through then. While an endpoint serves some models, but none serves
        others, the status is 200 and `concerns` counts the others. `concerns` also counts models
        that do not fit their entry in models.yaml, and says so where the ledger failed a request
        within the last minute, and where models.yaml was rejected.
        With `HOLD_TIMEOUT_S` the status is 200 while requests wait for the first Triton.
        The error's message names the category of the problem; the log line `not ready` has details.
        """
        return JSONResponse(_readiness(registry, ledger, concerns()))

    @router.get(
        "/metrics",
        tags=["metrics"],
        response_class=Response,
        responses=answers(None, content=METRICS),
    )
    async def prometheus(request: Request) -> Response:
        """Metrics in Prometheus' text format, or in OpenMetrics where `Accept` prefers it."""
        open_weight = weight(request.headers, "accept", OPEN_METRICS)
        is_open = 0 < open_weight >= weight(request.headers, "accept", PLAIN)
        async with exposing:  # so that many at once do not slow down the event loop
            shown, kind = await asyncio.to_thread(metrics.exposed, is_open=is_open)
        return Response(shown, headers={"content-type": kind})

    return router


def _readiness(registry: Registry, ledger: Ledger, found: Sequence[Concern]) -> dict[str, object]:
    """Raises a ServiceError: requests are not served."""
    outage = ledger.outage
    if registry.why_not_ready is not None and not registry.is_holding:
        raise ModelUnavailable(f"Not ready: {registry.why_not_ready.category}.")
    if fatal := [one.message for one in found if one.is_fatal]:
        reason = f"Not ready: {'; '.join(fatal)}."
        raise ServiceError(reason, code=ErrorCode.AUTHENTICATION_UNAVAILABLE)
    if outage == OutageMode.CLOSED:
        raise LimitsUnavailable("Not ready: the state of the limits cannot be reached.")
    body: dict[str, object] = {"status": "ready"}
    messages = [one.message for one in found]
    if count := len(registry.unserved()):  # numbers only: anybody may read them; the log has names
        messages.append(
            f"{count} of {len(registry.own_models)} models have no endpoint that is ready"
        )
    if count := len(registry.unfit):
        messages.append(f"models that do not fit models.yaml or the settings: {count}")
    if messages:
        body["concerns"] = messages
    if outage:
        body["ledger"] = outage
    return body
