"""The composition root: the only place that knows every part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.middleware import Middleware

from build_engines import models_file
from proxy import readiness
from proxy.api import errors, operations
from proxy.api.middleware import RequestContext
from proxy.api.openai import routes as openai_routes
from proxy.domain.engine import Catalog, Engine
from proxy.registry import Registry
from proxy.service import Service
from proxy.settings import Settings
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.watch import Telemetry
from proxy.triton.catalog import TritonCatalog
from proxy.triton.client import TritonClient


def create_app(settings: Settings) -> FastAPI:
    """The proxy in front of the Triton that the settings name.

    Raises:
        ModelsFileError: models.yaml is there but wrong.
    """
    client = TritonClient(settings.triton_target)
    return compose(settings, client, TritonCatalog(client))


def compose(settings: Settings, engine: Engine, catalog: Catalog) -> FastAPI:
    """The proxy over any engine; tests give their own."""
    has_file = settings.models_file.exists()
    policy = models_file.load(settings.models_file).models if has_file else {}
    metrics, registry = Metrics(), Registry(policy)
    service = Service(
        registry, engine, Telemetry(metrics), request_timeout_s=settings.request_timeout_s
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine:
            watching = asyncio.create_task(readiness.watch(catalog, registry))
            yield
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    app = FastAPI(
        title="triton-openai",
        lifespan=lifespan,
        middleware=[Middleware(RequestContext, metrics=metrics)],
    )
    errors.install(app)
    app.include_router(
        openai_routes.routes(service, registry, max_request_bytes=settings.max_request_bytes)
    )
    app.include_router(operations.routes(registry, metrics.registry))
    return app
