"""The web page at `/`: playground, live status, keys. Its files are in `proxy/page`.

The page knows nothing of this server: it calls the public API with the key that its user gives.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
# blob: and data: are images that the user gives.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",  # asks each time, and gets a 304
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """packed: with gzip. tag: its ETag, for both codings."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By the path below `/page/`. Packing takes some 20 ms, once."""
    folder = resources.files("proxy") / "page"
    return {name: _page_file(name, found) for name, found in _found(folder).items()}


def _found(folder: Traversable, prefix: str = "") -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for each in folder.iterdir():
        if each.is_dir():
            found |= _found(each, f"{prefix}{each.name}/")
        elif f".{each.name.rpartition('.')[2]}" in MEDIA_TYPES:
            found[prefix + each.name] = each
    return found


def _page_file(name: str, file: Traversable) -> PageFile:
    content = file.read_bytes()
    return PageFile(
        content=content,
        packed=gzip.compress(content, mtime=0),
        media_type=MEDIA_TYPES[f".{name.rpartition('.')[2]}"],
        tag=f'W/"{sha256(content).hexdigest()[:20]}"',
    )


def wants_page(request: Request) -> bool:
    """Whether a browser opens `/`; programs get what the server is, as JSON."""
    return "text/html" in request.headers.get("accept", "")


def page_answer(request: Request, name: str = INDEX) -> Response:
    """Raises HTTPException: the page has no such file."""
    if (file := page_files().get(name)) is None:
        raise HTTPException(404)
    vary = "Accept, Accept-Encoding" if name == INDEX else "Accept-Encoding"
    headers = {**HEADERS, "ETag": file.tag, "Vary": vary}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = file.packed, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)


def routes() -> APIRouter:
    """The files of the page. `/` itself is a route of pages_routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/page/{name:path}")
    async def page_file(name: str, http: Request) -> Response:
        return page_answer(http, name)

    return router
