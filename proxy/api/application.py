"""The ASGI application: FastAPI, with this proxy's layers around it. Made by `app`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


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
