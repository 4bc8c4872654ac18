"""Routes that describe this server: its address, the API's base URL, and its version."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.openapi.document import NAME
from triton_openai.proxy.api.openapi.responses import answers


class Version(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: str = Field(examples=["0.1.0"])


class Base(Version):
    """`endpoints`: entries like `GET /v1/models`."""

    name: str = Field(examples=[NAME])
    endpoints: list[str] = Field(examples=[["GET /v1/models"]])


class Whole(Base):
    documentation: str = Field(examples=["/docs"])
    openapi: str = Field(examples=["/openapi.json"])


def routes(version: str, routers: Iterable[APIRouter]) -> APIRouter:
    """`routers`: the server's routers, whose routes the page lists."""
    router, endpoints = APIRouter(tags=["about"]), _endpoints(routers)
    head = {"name": NAME, "version": version}
    pages = {"documentation": "/docs", "openapi": "/openapi.json"}
    whole = {**head, **pages, "endpoints": endpoints}
    base = {**head, "endpoints": [e for e in endpoints if " /v1/" in e]}

    @router.get("/", responses=answers(Whole))
    async def root() -> Response:
        """What this server is, and each of its endpoints."""
        return JSONResponse(whole)

    @router.get("/v1", responses=answers(Base))
    async def base_url() -> Response:
        """The endpoints below the base URL that OpenAI's SDKs take."""
        return JSONResponse(base)

    @router.get("/version", responses=answers(Version))
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
