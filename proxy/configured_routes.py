"""Settings -> the routes over the service, and the layers of ASGI around them. Called by `app`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware

from proxy import __version__, configured_limits
from proxy.access.authentication.authenticator import Authenticator
from proxy.access.concurrency import BoundedTokenizer, ConcurrencyLimit
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.start_gate import StartGate
from proxy.api import dynamo
from proxy.api.answers.answer import Answers
from proxy.api.authentication import Authentication, Denied, WithoutKeys
from proxy.api.bodies.body_reader import BodyReader
from proxy.api.fast_path import FastPath
from proxy.api.hosts import HostCheck, HostPolicy
from proxy.api.idempotency.layer import Idempotency, LayerParts
from proxy.api.journaling import ContentLog, Journaling, TracedContent
from proxy.api.middleware import (
    BeginsInTurn,
    HeadAsGet,
    RequestContext,
    WithoutLastSlash,
    cross_origin_layers,
)
from proxy.api.openai import chat_socket as openai_socket
from proxy.api.openai import openai_routes
from proxy.api.openai import render_route as openai_render
from proxy.api.openai.answers.annotations import Annotator
from proxy.api.openai.request_builder import RequestBuilder
from proxy.api.openapi.document import cached_document
from proxy.api.pages import pages_routes
from proxy.api.plain import plain_routes
from proxy.api.rate_limit_headers import RateLimitHeaders
from proxy.api.route_scopes import RouteScopes
from proxy.api.tokens import tokens_routes
from proxy.domain.sandbox import Sandbox
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.journal.journal import Journal
from proxy.language.structured.examiner import Examiner
from proxy.models.callers_models import CallersModels
from proxy.models.registry import Registry
from proxy.settings import Settings
from proxy.telemetry.held_bytes import HeldBytes
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import RequestObserver


def adapters(
    settings: Settings,
    service: Service,
    registry: Registry,
    tokenizer: Tokenizer,
    sandbox: Sandbox,
    stopping: asyncio.Event,
    bodies: BodyReader,
) -> tuple[APIRouter, ...]:
    """Every protocol over the one service."""
    calls = ConcurrencyLimit(settings.max_tokenizer_requests, what="tokenizer calls")
    tokenizer = BoundedTokenizer(tokenizer, calls)
    answers = Answers(service, keep_alive_s=settings.keep_alive_s)
    limits = configured_limits.field_limits(settings)
    models = CallersModels(registry, registry.can_serve)
    builder = RequestBuilder(
        models,
        limits,
        Examiner(sandbox, configured_limits.guide_limits(settings)),
        Annotator(service, tokenizer),
        reasoning_fields=settings.reasoning_fields,
    )
    socket = openai_socket.routes(
        service,
        builder,
        stopping,
        origins=settings.cors_origins,
        hosts=HostPolicy(settings.allowed_hosts),
        max_requests=settings.max_socket_requests,
        bodies=bodies,
    )
    return (
        openai_routes.routes(answers, models, builder, bodies=bodies),
        socket,
        openai_render.routes(service, tokenizer, builder, bodies=bodies),
        plain_routes.routes(answers, models, limits, bodies=bodies),
        tokens_routes.routes(service, tokenizer, models, limits, bodies=bodies),
        dynamo.routes(models),
    )


def with_pages(
    app: FastAPI, served: tuple[APIRouter, ...], settings: Settings, registry: Registry
) -> tuple[APIRouter, ...]:
    """With the front page, and the pages that document all routes of the application."""
    scopes = RouteScopes(public_metrics=settings.public_metrics)
    limits, needs_keys = configured_limits.field_limits(settings), settings.is_authenticated
    document = cached_document(app.routes, limits, registry, scopes if needs_keys else None)
    return (
        *served,
        pages_routes.front_routes(__version__, served),
        pages_routes.docs_routes(document),
    )


def layers(
    settings: Settings,
    metrics: Metrics,
    gate: StartGate,
    limiter: RequestLimiter,
    routers: tuple[APIRouter, ...],
    callers: Authenticator | None,
    denied: Denied,
    idempotency: LayerParts,
    observer: RequestObserver | None,
    journal: Journal | None,
    content: HeldBytes | None,
) -> list[Middleware]:
    """Outermost first. content: of spans; None where they have none."""
    scopes = RouteScopes(public_metrics=settings.public_metrics)
    options: dict[str, Any] = {"metrics": metrics, "scopes": scopes, "denied": denied}
    if callers is not None:
        authentication = [Middleware(Authentication, authenticator=callers, **options)]
    else:
        closed = [Middleware(WithoutKeys, scopes=scopes)]
        authentication = [] if settings.opens_administration else closed
    return [
        *cross_origin_layers(settings.cors_origins),
        Middleware(BeginsInTurn, gate=gate),
        Middleware(HeadAsGet),
        Middleware(WithoutLastSlash),
        Middleware(RequestContext, metrics=metrics, observer=observer),
        Middleware(HostCheck, hosts=HostPolicy(settings.allowed_hosts)),
        *authentication,
        Middleware(RateLimitHeaders, limiter=limiter, scopes=scopes),
        Middleware(Idempotency, parts=idempotency, scopes=scopes),
        Middleware(Journaling, journal=journal),
        *([Middleware(ContentLog)] if settings.log_content else ()),
        *(() if content is None else [Middleware(TracedContent, held=content)]),
        Middleware(FastPath, routers=routers),
    ]
