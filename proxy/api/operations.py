"""Health and metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import JSONResponse, Response

from proxy.domain.errors import ModelUnavailable
from proxy.registry import Registry


def routes(registry: Registry, metrics: CollectorRegistry) -> APIRouter:
    router = APIRouter()

    @router.get("/health/live")
    async def live() -> Response:
        return JSONResponse({"status": "live"})

    @router.get("/health/ready")
    async def ready() -> Response:
        """200 when Triton, every model and the tensor contract are as they must be."""
        if registry.why_not_ready is not None:
            raise ModelUnavailable(f"Not ready: {registry.why_not_ready}.")
        return JSONResponse({"status": "ready"})

    @router.get("/metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return router
