"""The ASGI application: FastAPI, with this proxy's layers around it. Made by `app`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from triton_openai.proxy.api.errors import routing_error


class Application(FastAPI):
    """`layers`: outermost first. They stand around FastAPI, so that what `Direct` answers does not
    pass FastAPI, and neither does each chunk of the answer.
    """

    def __init__(self, *, layers: Sequence[Middleware], **options: Any) -> None:
        super().__init__(**options)
        entry: ASGIApp = super().__call__
        for layer in reversed(layers):
            entry = layer.cls(entry, *layer.args, **layer.kwargs)
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._entry(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """FastAPI's own layers, without the one that answers all errors: RequestContext does."""
        handlers = {HTTPException: routing_error}
        return ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=handlers)
