"""Settings -> the routes over the service, and the layers of ASGI around them. Called by `app`."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, FastAPI

from proxy import __version__, configured_limits
from proxy.access.bounded_tokenizer import BoundedTokenizer
from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.http.answer import Answers
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.hosts import HostPolicy
from proxy.api.http.route_scopes import RouteScopes
from proxy.api.openai import chat_socket as openai_socket
from proxy.api.openai import openai_routes
from proxy.api.openai.answer_extras import Annotator
from proxy.api.openai.request_builder import RequestBuilder
from proxy.api.openapi.document import cached_document
from proxy.api.pages import pages_routes
from proxy.api.plain import plain_routes
from proxy.api.tokens import tokens_routes
from proxy.domain.sandbox import Sandbox
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.examiner import Examiner
from proxy.models.callers_models import CallersModels
from proxy.models.registry import Registry
from proxy.settings import Settings


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
        openai_routes.routes(answers, models, builder, service, tokenizer, bodies=bodies),
        socket,
        plain_routes.routes(answers, models, limits, bodies=bodies),
        tokens_routes.routes(service, tokenizer, models, limits, bodies=bodies),
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
