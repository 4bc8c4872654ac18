"""GET /openapi.json, the two pages that show it, /docs and /redoc, and what this server is.

The pages' files are part of this package (`page_files/README.md`). Their Content-Security-Policy
keeps the browser from loading anything from another host.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from proxy.api.http.accepted import weight
from proxy.api.openapi.document import NAME
from proxy.api.openapi.responses import Answer, answers
from proxy.api.page_routes import page_answer

FOLDER = resources.files("proxy.api.pages") / "page_files"
JAVASCRIPT, CSS, TEXT = "text/javascript", "text/css", "text/plain"
FILES = {
    "swagger-ui-bundle.js": JAVASCRIPT,
    "swagger-start.js": JAVASCRIPT,
    "swagger-ui.css": CSS,
    "swagger-ui.LICENSE.txt": TEXT,
    "redoc.standalone.js": JAVASCRIPT,
    "redoc.css": CSS,
    "redoc.LICENSE.txt": TEXT,
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Redoc adds two style elements: an empty one, filled through CSSOM, and one of a bundled library.
REDOC_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "'sha256-QMIg+bpjm3JdElJ388KYke01izlUW0UoNOeKjpMxdgc='",
)
FILE_HEADERS = {"Cache-Control": "max-age=3600"}


def docs_routes(document: Callable[[], bytes]) -> APIRouter:
    """`document` makes the OpenAPI document as JSON, which may take tenths of a second."""
    router, making = APIRouter(include_in_schema=False), asyncio.Lock()

    @router.get("/openapi.json")
    async def openapi() -> Response:
        async with making:  # so that many at once do not slow down the event loop
            return Response(await run_sync(document), media_type="application/json")

    @router.get("/docs")
    async def swagger_ui() -> Response:
        return Response(_content("docs.html"), headers=_policy(), media_type="text/html")

    @router.get("/redoc")
    async def redoc() -> Response:
        headers = _policy(*REDOC_STYLES)
        return Response(_content("redoc.html"), headers=headers, media_type="text/html")

    @router.get("/docs/{name}")
    async def file(name: str, http: Request) -> Response:
        if name not in FILES:
            raise HTTPException(404)
        headers, media_type = {**FILE_HEADERS, "Vary": "Accept-Encoding"}, FILES[name]
        if not (FOLDER / f"{name}.gz").is_file():
            return Response(_content(name), headers=headers, media_type=media_type)
        if weight(http.headers, "accept-encoding", "gzip"):
            content, headers["Content-Encoding"] = _content(f"{name}.gz"), "gzip"
        else:
            content = await run_sync(_decompressed, f"{name}.gz")
        return Response(content, headers=headers, media_type=media_type)

    return router


def _policy(*styles: str) -> dict[str, str]:
    """`styles`: hashes of the style elements that the page's script adds."""
    policy = POLICY.format(styles="".join(f" {one}" for one in styles))
    return {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}


@cache
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


@cache
def _decompressed(name: str) -> bytes:
    return gzip.decompress(_content(name))


class Version(Answer):
    version: str = Field(examples=["0.1.0"])


class Base(Version):
    """`endpoints`: entries like `GET /v1/models`."""

    name: str = Field(examples=[NAME])
    endpoints: list[str] = Field(examples=[["GET /v1/models"]])


class Whole(Base):
    documentation: str = Field(examples=["/docs"])
    openapi: str = Field(examples=["/openapi.json"])
    needs_key: bool = Field(description="Whether callers need a key or token.", examples=[True])


def front_routes(
    version: str, routers: Iterable[APIRouter], *, needs_key: bool, has_page: bool
) -> APIRouter:
    """`routers`: the server's routers, whose routes `/` lists. needs_key: callers need a key or
    token. has_page: browsers get the web page at `/`.
    """
    router, endpoints = APIRouter(tags=["about"]), _endpoints(routers)
    head = {"name": NAME, "version": version}
    pages = {"documentation": "/docs", "openapi": "/openapi.json"}
    whole = {**head, **pages, "needs_key": needs_key, "endpoints": endpoints}
    base = {**head, "endpoints": [e for e in endpoints if " /v1/" in e]}

    @router.get("/", responses=answers(Whole))
    async def root(http: Request) -> Response:
        """What this server is, and each of its endpoints. Browsers get the web page."""
        if has_page and weight(http.headers, "accept", "text/html"):
            return page_answer(http)
        return JSONResponse(whole, headers={"Vary": "Accept"} if has_page else None)

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
