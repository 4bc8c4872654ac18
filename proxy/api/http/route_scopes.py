"""The one list of routes, for HTTP and WebSockets: what each needs of its caller.

The application does not start with a route that is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starlette.routing import compile_path

from proxy.api.manifest import Need, Open, Route
from proxy.api.protocols import PROTOCOLS
from proxy.domain.identity import Scope

# Prefixes of routes that take no idempotency key, and why.
UNKEYED = {
    "/admin/v1/keys": "Answers with API keys are secrets, which are not kept for a second request.",
    "/v1/files": "Two uploads of a file have two bodies: each form has a boundary of its own.",
}
UNKNOWN = Route(need=Open.CALLER)

# The routes that are no protocol's.
_OWN: Mapping[str, Need] = {
    "/admin/": Scope.ADMIN,
    "/metrics": Scope.METRICS,
    "/metrics/live": Scope.METRICS,
    "/v1/usage": Open.CALLER,
    # Load balancers have no key. The answers name no model.
    "/health": Open.ANYBODY,
    "/health/live": Open.ANYBODY,
    "/health/ready": Open.ANYBODY,
    "/ping": Open.ANYBODY,
    # The web page and the documentation. A browser sends no key when it opens a page, and the pages
    # describe the software: no model, tenant or number of this server is in them but its limits.
    "/": Open.ANYBODY,
    "/page/{name:path}": Open.ANYBODY,
    "/v1": Open.ANYBODY,
    "/version": Open.ANYBODY,
    "/docs": Open.ANYBODY,
    "/docs/{name}": Open.ANYBODY,
    "/redoc": Open.ANYBODY,
    "/openapi.json": Open.ANYBODY,
}
ROUTES: Mapping[str, Route] = {
    **{path: route for each in PROTOCOLS for path, route in each.routes.items()},
    **{path: Route(need=need) for path, need in _OWN.items()},
}
_BELOW = sorted((path for path in ROUTES if path.endswith("/") and path != "/"), reverse=True)


class RouteScopes:
    """Finds the route of a request's path. A path without one needs a caller, who gets a 404."""

    def __init__(self, *, public_metrics: bool = False) -> None:
        opened = {"/metrics": Route(need=Open.ANYBODY)} if public_metrics else {}
        routes = {**ROUTES, **opened}
        self._fixed = {path: route for path, route in routes.items() if "{" not in path}
        self._patterns = [
            (compile_path(path)[0], route) for path, route in routes.items() if "{" in path
        ]

    def at(self, path: str) -> Route:
        """path: as ASGI has it, decoded."""
        route = self._fixed.get(path)
        return self._of_pattern(path) if route is None else route

    def _of_pattern(self, path: str) -> Route:
        for each in _BELOW:
            if path.startswith(each):
                return self._fixed[each]
        return next((route for shape, route in self._patterns if shape.match(path)), UNKNOWN)


def check(routes: Iterable[Any]) -> None:
    """
    Raises:
        ValueError: a route's path is not in the list.
    """
    missing = {
        path for path in paths(routes) if path not in ROUTES and not path.startswith(tuple(_BELOW))
    }
    if missing:
        raise ValueError(f"routes without a scope in route_scopes: {', '.join(sorted(missing))}")


def paths(routes: Iterable[Any]) -> Iterator[str]:
    for route in routes:
        yield getattr(route, "path", None) or repr(route)
