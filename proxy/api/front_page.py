"""What somebody finds who opens the server's address, or the base URL of its API, in a browser."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

NAME = "triton-openai"


def routes(version: str, routers: Iterable[APIRouter]) -> APIRouter:
    """`routers`: those of the server, whose routes are listed."""
    router, endpoints = APIRouter(), _endpoints(routers)
    whole = {
        "name": NAME,
        "version": version,
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "endpoints": endpoints,
    }
    base = {"name": NAME, "version": version, "endpoints": [e for e in endpoints if " /v1/" in e]}

    @router.get("/")
    async def root() -> Response:
        """What this server is, and each of its endpoints."""
        return JSONResponse(whole)

    @router.get("/v1")
    async def base_url() -> Response:
        """The endpoints below the base URL that OpenAI's SDKs take."""
        return JSONResponse(base)

    @router.get("/version")
    async def version_only() -> Response:
        return JSONResponse({"version": version})

    return router


def _endpoints(routers: Iterable[APIRouter]) -> list[str]:
    """Such as `GET /v1/models`."""
    return sorted(
        f"{method} {route.path}"
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    )
