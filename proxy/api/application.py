"""The ASGI application: FastAPI, with this proxy's layers around it. Made by `app`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send


class Application(FastAPI):
    """`layers`: outermost first. They stand around FastAPI and not, as its own middleware does,
    inside of its layers for errors and telemetry, which every chunk would pass without effect.
    """

    def __init__(self, *, layers: Sequence[Middleware], **options: Any) -> None:
        super().__init__(**options)
        entry: ASGIApp = super().__call__
        for layer in reversed(layers):
            entry = layer.cls(entry, *layer.args, **layer.kwargs)
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._entry(scope, receive, send)
