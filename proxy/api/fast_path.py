"""Middleware that calls the endpoints of frequent routes directly, past FastAPI's routing."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class FastPath:
    """Sends a POST to a fixed path of the routers straight to its endpoint, all else to FastAPI.

    These endpoints take only the request. FastAPI does nothing useful for them, but needs as much
    time as the endpoint itself, and each of its layers handles every chunk that is sent. The routes
    are registered with FastAPI as well, for its OpenAPI document and for wrong methods.
    """

    def __init__(self, app: ASGIApp, *, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._routes = {
            route.path: route
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and _is_plain(route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)

    def _route(self, scope: Scope) -> APIRoute | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        return self._routes.get(scope["path"])


def _is_plain(route: APIRoute) -> bool:
    """Whether the endpoint takes only the request, and returns a finished response."""
    takes = route.dependant
    params = (takes.path_params, takes.query_params, takes.header_params, takes.cookie_params)
    takes_more = any(params) or bool(takes.body_params or takes.dependencies)
    is_answered = iscoroutinefunction(route.endpoint) and route.response_field is None
    return is_answered and not takes_more and "POST" in (route.methods or ())
