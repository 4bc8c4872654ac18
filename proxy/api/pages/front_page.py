"""Routes that describe this server: its address, the API's base URL, and its version."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.openapi.operation import JSON, Content, Operation

NAME = "triton-openai"
TAG = "about"


class Version(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: str


class Base(Version):
    """`endpoints`: entries like `GET /v1/models`."""

    name: str
    endpoints: list[str]


class Whole(Base):
    documentation: str
    openapi: str


_EXAMPLE = {"name": NAME, "version": "0.1.0", "endpoints": ["GET /v1/models"]}
_PAGES = {"documentation": "/docs", "openapi": "/openapi.json"}
WHOLE = Operation(tag=TAG, gives={JSON: Content(body=Whole, example={**_EXAMPLE, **_PAGES})})
BASE = Operation(tag=TAG, gives={JSON: Content(body=Base, example=_EXAMPLE)})
VERSION = Operation(tag=TAG, gives={JSON: Content(body=Version, example={"version": "0.1.0"})})


def routes(version: str, routers: Iterable[APIRouter]) -> APIRouter:
    """`routers`: the server's routers, whose routes the page lists."""
    router, endpoints = APIRouter(), _endpoints(routers)
    whole = {"name": NAME, "version": version, **_PAGES, "endpoints": endpoints}
    base = {"name": NAME, "version": version, "endpoints": [e for e in endpoints if " /v1/" in e]}

    @router.get("/", openapi_extra=WHOLE.extra)
    async def root() -> Response:
        """What this server is, and each of its endpoints."""
        return JSONResponse(whole)

    @router.get("/v1", openapi_extra=BASE.extra)
    async def base_url() -> Response:
        """The endpoints below the base URL that OpenAI's SDKs take."""
        return JSONResponse(base)

    @router.get("/version", openapi_extra=VERSION.extra)
    async def version_only() -> Response:
        """The version of this server."""
        return JSONResponse({"version": version})

    return router


def _endpoints(routers: Iterable[APIRouter]) -> list[str]:
    """Entries like `GET /v1/models`."""
    return sorted(
        f"{method} {route.path}"
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    )
