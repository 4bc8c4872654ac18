"""The list of layers that every request passes, and the application inside them. Made by `app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.access.authentication.authenticator import Authenticator
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.start_gate import StartGate
from proxy.api import errors
from proxy.api.http.authentication import Authentication, Denied, WithoutKeys
from proxy.api.http.hosts import HostCheck, HostPolicy
from proxy.api.http.idempotency import Idempotency, LayerParts
from proxy.api.http.journaling import ContentLog, Journaling, TracesContent
from proxy.api.http.middleware import RequestContext, cross_origin_layers
from proxy.api.http.rate_limit_headers import RateLimitHeaders
from proxy.api.http.route_scopes import RouteScopes
from proxy.api.http.typed_route import FastPath
from proxy.api.openapi.document import NAME
from proxy.journal.journal import Journal
from proxy.settings import Settings
from proxy.telemetry.kept_content import HeldBytes
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import RequestLog


def layers(
    settings: Settings,
    *,
    metrics: Metrics,
    gate: StartGate,
    limiter: RequestLimiter,
    routers: tuple[APIRouter, ...],
    callers: Authenticator | None,
    denied: Denied,
    idempotency: LayerParts,
    log: RequestLog,
    journal: Journal | None,
    content: HeldBytes | None,
) -> list[Middleware]:
    """Outermost first. content: of spans; None where they have none.

    Layers without work after the answer return the next one's coroutine in place of awaiting it,
    so that no chunk of a stream passes them.
    """
    scopes = RouteScopes(public_metrics=settings.public_metrics)
    options: dict[str, Any] = {"metrics": metrics, "scopes": scopes, "denied": denied}
    if callers is not None:
        authentication = [Middleware(Authentication, authenticator=callers, **options)]
    else:
        closed = [Middleware(WithoutKeys, scopes=scopes)]
        authentication = [] if settings.opens_administration else closed
    return [
        *cross_origin_layers(settings.cors_origins),
        Middleware(RequestContext, gate=gate, metrics=metrics, log=log),
        Middleware(HostCheck, hosts=HostPolicy(settings.allowed_hosts)),
        *authentication,
        Middleware(RateLimitHeaders, limiter=limiter, scopes=scopes),
        Middleware(Idempotency, parts=idempotency, scopes=scopes),
        Middleware(Journaling, journal=journal),
        *([Middleware(ContentLog)] if settings.log_content else ()),
        *(() if content is None else [Middleware(TracesContent, held=content)]),
        Middleware(FastPath, routers=routers),
    ]


class Application(FastAPI):
    """FastAPI inside `layers`, the outermost first; the outermost catches all errors.

    FastAPI would put them inside its own middleware, which every chunk would pass without effect.

    running: what runs as long as the application serves.
    """

    def __init__(
        self,
        layers: Sequence[Middleware],
        running: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(
            title=NAME,
            version=__version__,
            redirect_slashes=False,
            openapi_url=None,  # `pages` serves the document, without a CDN
            generate_unique_id_function=lambda route: "_".join([*map(str, route.tags), route.name]),
            lifespan=running,
            exception_handlers={HTTPException: errors.routing_error},
        )
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
