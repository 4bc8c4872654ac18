"""Middleware that calls the endpoints of frequent routes directly, past FastAPI's routing."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.typed_route import TypedRoute


class FastPath:
    """Sends a POST to a fixed path of the routers straight to its endpoint, all else to FastAPI.

    FastAPI does nothing useful for them, but needs as much time as the endpoint itself, and each of
    its layers handles every chunk that is sent. The routes are registered with FastAPI as well, for
    its OpenAPI document and for wrong methods.
    """

    def __init__(self, app: ASGIApp, *, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._routes = {
            route.path: route
            for router in routers
            for route in router.routes
            if isinstance(route, TypedRoute)
            and "POST" in (route.methods or ())
            and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.answer(Request(scope, receive))
        await response(scope, receive, send)

    def _route(self, scope: Scope) -> TypedRoute | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        return self._routes.get(scope["path"])
