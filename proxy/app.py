"""The composition root: the only place that knows every part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware

from triton_openai.build_engines.models_file import ModelEntry
from triton_openai.proxy import __version__, background, configured_limits, configured_store
from triton_openai.proxy.access.authentication import composition as authentication
from triton_openai.proxy.access.authentication.authenticator import Authenticator
from triton_openai.proxy.access.bounded_tokenizer import BoundedTokenizer
from triton_openai.proxy.access.concurrency import ConcurrencyLimit
from triton_openai.proxy.access.guide_precheck import GuidePrecheck
from triton_openai.proxy.access.limits.request_limiter import RequestLimiter
from triton_openai.proxy.access.log_prob_budget import LogProbBudget
from triton_openai.proxy.access.model_concurrency import ModelConcurrency
from triton_openai.proxy.access.request_size import RequestSizeLimits
from triton_openai.proxy.access.start_gate import StartGate
from triton_openai.proxy.api import cross_origin, dynamo, monitoring, route_scopes
from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.application import application
from triton_openai.proxy.api.authentication import Authentication, Denied, no_audit
from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.api.fast_path import FastPath
from triton_openai.proxy.api.hosts import HostCheck, HostPolicy
from triton_openai.proxy.api.middleware import (
    BeginsInTurn,
    HeadAsGet,
    RequestContext,
    WithoutLastSlash,
)
from triton_openai.proxy.api.openai import chat_socket as openai_socket
from triton_openai.proxy.api.openai import openai_routes
from triton_openai.proxy.api.openai import render_route as openai_render
from triton_openai.proxy.api.openai.answers.annotations import Annotator
from triton_openai.proxy.api.openai.request_builder import RequestBuilder
from triton_openai.proxy.api.openapi.cached_document import cached_document
from triton_openai.proxy.api.pages import docs_pages, front_page
from triton_openai.proxy.api.plain import plain_routes
from triton_openai.proxy.api.rate_limit_headers import RateLimitHeaders
from triton_openai.proxy.api.tokens import tokens_routes
from triton_openai.proxy.domain.engine import Catalog, Engine
from triton_openai.proxy.domain.key_records import KeySource
from triton_openai.proxy.domain.sandbox import Sandbox
from triton_openai.proxy.domain.tokenizer import Tokenizer
from triton_openai.proxy.domain.usage import UsageStore
from triton_openai.proxy.generation.composition import Access, composed
from triton_openai.proxy.generation.service import Service
from triton_openai.proxy.models import policy, readiness
from triton_openai.proxy.models.callers_models import CallersModels
from triton_openai.proxy.models.recovery_queue import RecoveryQueue
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.process_sandbox import ProcessSandbox
from triton_openai.proxy.server_tools.http_tools import HttpToolRunner
from triton_openai.proxy.settings import Settings, environment
from triton_openai.proxy.structured.examiner import Examiner
from triton_openai.proxy.telemetry.loop_lag import LoopLag
from triton_openai.proxy.telemetry.metrics import Metrics
from triton_openai.proxy.telemetry.request_watcher import TelemetryWatcher
from triton_openai.proxy.triton.catalog import TritonCatalog
from triton_openai.proxy.triton.client import TritonClient
from triton_openai.proxy.triton.target import Target
from triton_openai.proxy.triton.tokenizer import TritonTokenizer

if TYPE_CHECKING:
    from triton_openai.proxy.access.store.store import Store


def create_app(settings: Settings, shared: Path | None = None) -> FastAPI:
    """The proxy in front of the Triton that the settings name.

    Args:
        shared: a folder for what several processes of one proxy have in common.

    Raises:
        ModelsFileError: models.yaml cannot be read, is invalid, or needs a variable not set.
        UnservableFolder: MODEL_PATH holds no model.
        MissingPackage: only the build tools can name the model in MODEL_PATH.
    """
    target = Target(
        settings.triton_target,
        settings.triton_is_tls,
        settings.triton_ca_file,
        settings.triton_secret_value,
    )
    client = TritonClient(
        target, settings.triton_transport, max_age_s=settings.triton_connection_age_s
    )
    tokenizer = TritonTokenizer(client)
    sandbox = ProcessSandbox(configured_limits.sandbox_limits(settings))
    store = configured_store.store(settings)
    return compose(settings, client, TritonCatalog(client), tokenizer, sandbox, shared, store=store)


def compose(
    settings: Settings,
    engine: Engine,
    catalog: Catalog,
    tokenizer: Tokenizer,
    sandbox: Sandbox,
    shared: Path | None = None,
    keys: KeySource | None = None,
    store: Store | None = None,
    *,
    usage: UsageStore | None = None,
) -> FastAPI:
    """The proxy over any engine; tests give their own. keys, usage: others than the store's."""
    entries = policy.models(settings).models if policy.has_models(settings) else {}
    registry, metrics, gate = _registry(settings, entries), Metrics(shared), StartGate()
    if store is not None:
        keys, usage = keys or store.keys, usage or store.usage_store
    callers = authentication.authenticator(settings, keys, metrics)
    recovery = RecoveryQueue(gate)
    ledger = configured_limits.ledger(settings, metrics, shared)
    limiter = configured_limits.limiter(settings, metrics, ledger, tokenizer, usage)
    lag = LoopLag(metrics.loop_lag, warn_s=settings.loop_lag_warn_ms / 1000)
    service = composed(
        *(registry, engine, TelemetryWatcher(metrics)),
        _access(settings, tokenizer, registry, limiter, shared),
        HttpToolRunner(policy.secrets(entries, environment())),
        *(sandbox, gate, recovery),
        limits=configured_limits.time_limits(settings),
        max_resends=settings.max_resends,
    )
    stopping, in_flight = asyncio.Event(), BytesInFlight(settings.max_bodies_bytes)
    bodies = BodyReader(configured_limits.body_limits(settings), sandbox, in_flight)
    routers = _adapters(settings, service, registry, tokenizer, sandbox, stopping, bodies)
    if store is not None:
        routers += configured_store.routes(store, bodies)
    denied = no_audit if store is None else store.denied_calls.add
    app = application(
        _layers(settings, metrics, gate, limiter, routers, (callers,) if callers else (), denied),
        lambda _: _running(
            (engine, store, ledger, callers.running() if callers else None),
            *(catalog, registry, metrics, recovery, sandbox, lag),
        ),
    )
    app.state.stopping, app.state.in_flight = stopping, in_flight
    concerns = callers.concerns if callers else tuple
    served = (*routers, monitoring.routes(registry, metrics, ledger, concerns))
    for router in _with_pages(served, settings, registry):
        app.include_router(router)
    route_scopes.check(app.routes)
    return app


def _registry(settings: Settings, entries: Mapping[str, ModelEntry]) -> Registry:
    return Registry(
        entries,
        configured_limits.request_limits(settings),
        callers_control_tokens=settings.callers_control_tokens,
    )


def _with_pages(
    served: tuple[APIRouter, ...], settings: Settings, registry: Registry
) -> tuple[APIRouter, ...]:
    """With the front page, and the pages that document all of these routes."""
    documented = (*served, front_page.routes(__version__, served))
    limits, needs_keys = configured_limits.field_limits(settings), settings.is_authenticated
    document = cached_document(documented, limits, registry, needs_keys=needs_keys)
    return *documented, docs_pages.routes(document)


def _layers(
    settings: Settings,
    metrics: Metrics,
    gate: StartGate,
    limiter: RequestLimiter,
    routers: tuple[APIRouter, ...],
    callers: tuple[Authenticator, ...],
    denied: Denied,
) -> list[Middleware]:
    """Outermost first."""
    scopes = route_scopes.RouteScopes(public_metrics=settings.public_metrics)
    options: dict[str, Any] = {"metrics": metrics, "scopes": scopes, "denied": denied}
    return [
        *cross_origin.layers(settings.cors_origins),
        Middleware(BeginsInTurn, gate=gate),
        Middleware(HeadAsGet),
        Middleware(WithoutLastSlash),
        Middleware(RequestContext, metrics=metrics),
        Middleware(HostCheck, hosts=HostPolicy(settings.allowed_hosts)),
        *(Middleware(Authentication, authenticator=one, **options) for one in callers),
        Middleware(RateLimitHeaders, limiter=limiter, scopes=scopes),
        Middleware(FastPath, routers=routers),
    ]


@contextlib.asynccontextmanager
async def _running(
    parts: Iterable[contextlib.AbstractAsyncContextManager[object] | None],
    catalog: Catalog,
    registry: Registry,
    metrics: Metrics,
    recovery: RecoveryQueue,
    sandbox: Sandbox,
    lag: LoopLag,
) -> AsyncIterator[None]:
    """parts: enter in this order, and leave in the other."""
    async with contextlib.AsyncExitStack() as running:
        for part in filter(None, parts):
            await running.enter_async_context(part)
        # before it listens: others may listen with it, and say that they are ready
        await asyncio.gather(readiness.refresh(catalog, registry), sandbox.start())
        watching = asyncio.create_task(readiness.watch(catalog, registry, metrics, recovery))
        with lag.measured():
            yield
        await background.end([watching])


def _adapters(
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
    models = CallersModels(registry)
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


def _access(
    settings: Settings,
    tokenizer: Tokenizer,
    registry: Registry,
    limiter: RequestLimiter,
    shared: Path | None,
) -> Access:
    return Access(
        limiter=limiter,
        concurrency=ModelConcurrency(
            settings.concurrent_requests, per_row=settings.generations_per_row, shared=shared
        ),
        guide_precheck=GuidePrecheck(tokenizer, epoch=lambda: registry.epoch),
        log_prob_budget=LogProbBudget(settings.max_held_log_probs),
        request_size=RequestSizeLimits(
            copied_bytes=int(settings.max_copied_mb * 1_000_000),
            log_probs=settings.max_log_probs,
        ),
        isolates_caches=settings.isolate_prefix_caches,
        hides_cached_tokens=not settings.report_cached_tokens,
    )
