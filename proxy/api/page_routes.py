"""The web page at `/`: playground, live status, keys. Its files are in `proxy/page`.

The files are the same on every server. The page calls the public API with its user's key.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from proxy.api.http.accepted import weight

INDEX, FOLDERS = "index.html", ("", "vendor/")
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
HEADERS = {
    "Cache-Control": "no-cache",  # asks each time, and gets a 304
    # blob: and data: are images that the user gives
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class PageFile(NamedTuple):
    """packed: with gzip. tag: its ETag, for both codings."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By the path below `/page/`. Packing takes some 20 ms, once."""
    root, found = resources.files("proxy") / "page", {}
    for folder in FOLDERS:
        for name in (f"{folder}{each.name}" for each in (root / folder).iterdir()):
            if (media_type := TYPES.get(name.rpartition(".")[2])) is not None:
                content = (root / name).read_bytes()
                tag = f'W/"{sha256(content).hexdigest()[:20]}"'
                found[name] = PageFile(content, gzip.compress(content, mtime=0), media_type, tag)
    return found


def page_answer(request: Request, name: str = INDEX) -> Response:
    """Raises HTTPException: the page has no such file."""
    if (file := page_files().get(name)) is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": file.tag, "Vary": "Accept, Accept-Encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if weight(request.headers, "accept-encoding", "gzip"):
        content, headers["Content-Encoding"] = file.packed, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)


def routes() -> APIRouter:
    """The files of the page. `/` itself is a route of pages_routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/page/{name:path}")
    async def page_file(name: str, http: Request) -> Response:
        return page_answer(http, name)

    return router
