"""Health and metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from proxy.domain.errors import ModelUnavailable
from proxy.registry import Registry
from proxy.telemetry.metrics import Metrics


def routes(registry: Registry, metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/health/live")
    async def live() -> Response:
        return JSONResponse({"status": "live"})

    @router.get("/ping")
    @router.get("/health")
    @router.get("/health/ready")
    async def ready() -> Response:
        """200 when Triton, every model and the tensor contract are as they must be.

        Otherwise the body has the category of the problem; the log line `not ready` has the detail.
        """
        if registry.why_not_ready is not None:
            raise ModelUnavailable(f"Not ready: {registry.why_not_ready.category}.")
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        return Response(metrics.exposed(), media_type=CONTENT_TYPE_LATEST)

    return router
