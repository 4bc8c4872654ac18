"""The ASGI application: FastAPI, with this proxy's layers around it. Made by `app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.api import errors
from proxy.api.openapi.document import NAME


class Application(FastAPI):
    """FastAPI inside `layers`, the outermost first; the outermost catches all errors.

    FastAPI would put them inside its own middleware, which every chunk would pass without effect.
    """

    def __init__(self, *, layers: Sequence[Middleware], **options: Any) -> None:
        super().__init__(**options)
        entry: ASGIApp = super().__call__
        for layer in reversed(layers):
            entry = layer.cls(entry, *layer.args, **layer.kwargs)
        self._entry = entry

    def build_middleware_stack(self) -> ASGIApp:
        """Without ServerErrorMiddleware, which would answer errors before the layers see them."""
        outermost = super().build_middleware_stack()
        if not isinstance(outermost, ServerErrorMiddleware):
            raise TypeError(f"FastAPI's outermost middleware is {type(outermost).__name__}")
        return outermost.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._entry(scope, receive, send)


def application(
    layers: Sequence[Middleware], running: Callable[[FastAPI], AbstractAsyncContextManager[None]]
) -> Application:
    """running: what runs as long as the application serves."""
    return Application(
        title=NAME,
        version=__version__,
        redirect_slashes=False,
        openapi_url=None,  # `pages` serves the document, without a CDN
        generate_unique_id_function=lambda route: "_".join([*route.tags, route.name]),
        lifespan=running,
        layers=layers,
        exception_handlers={HTTPException: errors.routing_error},
    )
