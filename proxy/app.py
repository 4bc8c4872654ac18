"""The composition root: the list of all parts, from the settings to the application."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from build_engines.models_file import ModelsFile
from proxy import __version__, background
from proxy.access.authentication.authenticator import Authenticator
from proxy.access.concurrency import (
    BoundedTokenizer,
    LogProbBudget,
    ModelConcurrency,
    SharedConcurrency,
)
from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.limits.charged_sandbox import ChargedSandbox
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.process_sandbox import ProcessSandbox
from proxy.access.start_gate import StartGate
from proxy.access.store import open_store
from proxy.api import live_routes, log_level_routes, monitoring, page_routes, recent_routes
from proxy.api.anthropic import messages_routes
from proxy.api.batches import batch_routes
from proxy.api.batches.batch_input import BatchInput
from proxy.api.batches.batch_store import BatchStore
from proxy.api.batches.files import Files, Owner
from proxy.api.batches.runner import BatchRunner
from proxy.api.decisions import decisions_routes
from proxy.api.http import route_scopes
from proxy.api.http.answer import Answers
from proxy.api.http.application import Application
from proxy.api.http.authentication import Authentication, no_audit
from proxy.api.http.body_reader import MOST_BODIES_BYTES, BodyLimits, BodyReader, BytesInFlight
from proxy.api.http.hosts import HostPolicy
from proxy.api.http.idempotency import IdempotencyParts
from proxy.api.http.request_socket import SocketParts
from proxy.api.http.route_scopes import RouteScopes
from proxy.api.kserve import kserve_routes
from proxy.api.openai import chat_socket, openai_routes
from proxy.api.openai.request_builder import FieldLimits, RequestBuilder
from proxy.api.openapi.document import cached_document
from proxy.api.pages import pages_routes
from proxy.api.plain import plain_routes
from proxy.api.pools import pools_routes
from proxy.api.responses import response_socket, responses_routes
from proxy.api.responses.background import BackgroundResponses
from proxy.api.responses.response_builder import KeptResponses, ResponseBuilder
from proxy.api.tokens import tokens_routes
from proxy.domain.endpoints import AuditTrail, Decisions
from proxy.domain.engine import Catalog, Engine
from proxy.domain.errors import LaunchError
from proxy.domain.health import Concern
from proxy.domain.key_records import KeySource
from proxy.domain.kserve import KserveBackend
from proxy.domain.log_level import LogLevel
from proxy.domain.request_limits import RequestLimits
from proxy.domain.sandbox import Sandbox
from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageStore
from proxy.generation.answer_streams import Means
from proxy.generation.prepare import Preparation
from proxy.generation.service import Service
from proxy.generation.shadow import ShadowTraffic
from proxy.generation.stream.continuation import ContinuationLimits
from proxy.generation.stream.engine_stream import StreamMeans
from proxy.generation.stream.time_limits import TimeLimits
from proxy.journal.journal import Journal, JournalLimits
from proxy.language.structured.checks import Checker
from proxy.language.structured.constraint_request import Examiner, GuideLimits
from proxy.models import policy, readiness
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.policy_watch import PolicyWatch
from proxy.models.registry import ModelInfo, Registry
from proxy.pools import named_pools
from proxy.pools.memory_decisions import LoggedAudit, MemoryDecisions
from proxy.pools.pool_set import PoolSet
from proxy.pools.pooled_engine import PooledEngine, PooledTokenizer
from proxy.pools.pooled_kserve import PooledKserve
from proxy.pools.queue_capacity import QueueCapacities
from proxy.scheduling.in_process import InProcessScheduler
from proxy.server_tools.http_tools import HttpToolRunner
from proxy.server_tools.image_fetcher import ImageFetcher
from proxy.settings import Settings, environment
from proxy.state.answer import KEPT_PART, AnswerLimits, held_bytes, within
from proxy.state.memory_meters import InProcessLedger
from proxy.state.memory_streams import MemoryStreams
from proxy.state.meters import Ledger, OutageMode
from proxy.state.objects import FolderObjects, Objects
from proxy.state.relay import Relay
from proxy.state.streams import StreamLimits, StreamStore
from proxy.telemetry import logs
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent_requests import RecentRequests
from proxy.telemetry.request_log import RequestLog
from proxy.telemetry.traces.configuration import TraceConfiguration, WrongTraceVariable

if TYPE_CHECKING:
    from proxy.access.store.store import Store
    from proxy.state.redis_connection import RedisConnection
    from proxy.telemetry.traces.tracing import Tracing


MOST_BATCH_LINES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What operators change while the proxy runs, and where it is kept."""

    pools: PoolSet
    kserve: KserveBackend
    decisions: Decisions
    audit: AuditTrail
    log_levels: logs.ChosenLevel


def create_app(settings: Settings) -> FastAPI:
    """The proxy in front of the Tritons that the settings and models.yaml name.

    Raises:
        ModelsFileError: models.yaml cannot be read, is invalid, or needs a variable not set.
        UnservableFolder: MODEL_PATH holds no model.
        MissingPackage: only the build tools can name the model in MODEL_PATH.
        LaunchError: TRITON_URL does not say where endpoints are found.
    """
    metrics = Metrics(tenants=settings.metrics_tenants)
    store = open_store(settings)
    models_file = _models_file(settings)
    counter = EndpointMetrics(metrics.registry, metrics.generations.leave_uncharged)
    decisions = MemoryDecisions() if store is None else store.decisions
    pools = named_pools.pool_set(settings, models_file, environment(), counter, decisions)
    set_level = partial(logs.set_level, has_content=settings.log_content)
    operations = Operations(
        pools=pools,
        kserve=PooledKserve(pools),
        decisions=decisions,
        audit=LoggedAudit() if store is None else store.audit,
        log_levels=logs.ChosenLevel(LogLevel(settings.log_level), set_level),
    )
    return compose(
        settings,
        PooledEngine(pools, counter),
        pools,
        PooledTokenizer(pools),
        ProcessSandbox(processes=settings.sandbox_processes),
        store=store,
        metrics=metrics,
        operations=operations,
        models_file=models_file,
    )


def compose(
    settings: Settings,
    engine: Engine,
    catalog: Catalog,
    tokenizer: Tokenizer,
    sandbox: Sandbox,
    keys: KeySource | None = None,
    store: Store | None = None,
    *,
    usage: UsageStore | None = None,
    metrics: Metrics | None = None,
    operations: Operations | None = None,
    models_file: ModelsFile | None = None,
    scheduler: Scheduler | None = None,
    images: ImageFetcher | None = None,
) -> FastAPI:
    """The proxy over any engine.

    Args:
        keys, usage, scheduler, images: in place of those of the store and the settings.
        models_file: models.yaml, if it was read already.

    Raises:
        ValueError: a route has no scope.
    """
    metrics = metrics or Metrics(tenants=settings.metrics_tenants)
    metrics.isolates_caches.set(settings.isolates_prefix_caches)
    models_file = models_file or _models_file(settings)
    entries = {} if models_file is None else models_file.models

    # who calls, and how much they may take
    if store is not None:
        keys, usage = keys or store.keys, usage or store.usage
    callers = Authenticator(settings, keys, metrics) if settings.is_authenticated else None
    scopes = RouteScopes(public_metrics=settings.public_metrics)
    redis = _redis(settings)
    ledger = _ledger(settings, redis)
    limiter = RequestLimiter(
        ledger,
        tokenizer,
        usage=usage,
        cached_weight=settings.cached_token_weight,
        max_priority=settings.priority_ceiling,
        on_refusal=lambda limit: metrics.limit_refusals.labels(limit).inc(),
    )
    metrics.ledger_up.set_function(lambda: limiter.is_ledger_up)
    if store is not None and settings.ledger_url is None:
        usage_writer = store.usage
        metrics.unshared_proxies.set_function(lambda: usage_writer.others)
    sandbox = ChargedSandbox(sandbox, limiter)

    # models
    registry = Registry(
        entries,
        RequestLimits(
            max_tokens=settings.max_output_tokens, prompt_tokens=settings.max_prompt_tokens
        ),
        callers_control_tokens=settings.callers_control_tokens,
        is_available=catalog.is_available,
        rows=catalog.rows,
        holds=settings.hold_timeout_s > 0,
    )
    tools = HttpToolRunner(policy.secrets(entries, environment()))

    # generation
    gate = StartGate()
    recovery = readiness.RecoveryQueue(gate)
    capacities = None
    if scheduler is None:
        scheduler = _scheduler(settings, metrics)
        if operations is not None and settings.scheduling == "fair":
            capacities = QueueCapacities(
                operations.pools,
                scheduler,
                spare=settings.spare_streams,
                share=lambda streams: -(-streams // ledger.proxies),  # no row stays idle
                rows=registry.said_rows,
                holds=registry.holds_queue,
            )
    shadows = ShadowTraffic(registry, engine, metrics.shadow.count, scheduler)
    limits = TimeLimits(
        silence_s=settings.stall_timeout_s,
        short_silence_s=settings.continue_after_silence_s,
    )
    streams = StreamMeans(
        registry=registry,
        recovery_queue=recovery,
        engine=engine,
        guide_precheck=GuidePrecheck(tokenizer, epoch=lambda: registry.epoch),
        shadows=shadows,
        limits=limits,
        max_resends=settings.max_resends,
        continuing=ContinuationLimits(
            most=settings.max_continuations,
            allows_inexact=settings.inexact_continuation == "continue",
            within_s=settings.continue_within_s,
        ),
        scheduler=scheduler,
    )
    preparation = Preparation(
        sandbox,
        gate,
        limiter,
        DeploymentChooser(registry, None if operations is None else operations.decisions),
        timeout_s=settings.request_timeout_s,
        isolates_caches=settings.isolates_prefix_caches,
        clamps_output=None
        if settings.max_output_tokens_exceeded is None
        else settings.max_output_tokens_exceeded == "clamp",
        describes_images=settings.unreadable_result_images == "describe",
        queues_by_priority=settings.scheduling == "fair",
    )
    policy_watch = PolicyWatch(
        settings,
        models_file,
        registry,
        tools,
        metrics.models_file_valid,
        preparation.learn,
        audit=None if operations is None else operations.audit,
    )
    concurrency = ModelConcurrency(
        settings.concurrent_requests,
        per_row=settings.generations_per_row,
        rows=registry.rows,
        are_queued=settings.scheduling == "fair",
    )
    means = Means(
        preparation=preparation,
        tools=tools,
        images=images or ImageFetcher(settings.max_request_bytes),
        checker=Checker(sandbox),
        gate=gate,
        streams=streams,
        counts_cached=settings.report_cached_tokens,
    )
    service = Service(registry, metrics.generations, concurrency, limiter, LogProbBudget(), means)

    # routes
    stopping = asyncio.Event()
    in_flight = BytesInFlight(max(MOST_BODIES_BYTES, 4 * settings.max_request_bytes))
    bodies = BodyReader(BodyLimits(bytes=settings.max_request_bytes), sandbox, in_flight)
    field_limits = FieldLimits(choices=settings.max_choices, priority_words=settings.priority_words)
    called_tokenizer = BoundedTokenizer(tokenizer)
    answers = Answers(service, keep_alive_s=settings.keep_alive_s)
    hosts = HostPolicy(settings.allowed_hosts)
    examiner = Examiner(sandbox, GuideLimits())
    builder = RequestBuilder(
        registry,
        field_limits,
        examiner,
        service,
        called_tokenizer,
        ceiling=limiter.ceiling,
        tenant_from_metadata=settings.tenant_from_metadata,
        reasoning_fields=settings.reasoning_fields,
    )
    recent = RecentRequests()
    tracing = _tracing(settings, environment(), metrics)
    if tracing is None:
        log = RequestLog(recent)
    else:
        log = RequestLog(tracing, recent, trace=tracing.trace)
    sockets = SocketParts(
        stopping=stopping,
        origins=settings.origins,
        hosts=hosts,
        bodies=bodies,
        log=log,
        connected=SharedConcurrency(settings.max_websockets, what="WebSockets"),
    )
    kept = KeptResponses(_responses(settings, redis), bodies)
    responses = ResponseBuilder(builder, field_limits, kept, service, called_tokenizer)
    in_background = BackgroundResponses(responses, service, log)
    routers = [
        openai_routes.routes(answers, registry, builder, service, called_tokenizer, bodies=bodies),
        chat_socket.routes(service, builder, sockets),
        response_socket.routes(service, responses, limiter, sockets),
        responses_routes.routes(
            answers,
            responses,
            in_background,
            keep_alive_s=settings.keep_alive_s,
            bodies=bodies,
        ),
        decisions_routes.routes(service, registry, bodies=bodies),
        messages_routes.routes(
            answers, registry, field_limits, examiner, service, called_tokenizer, bodies=bodies
        ),
        plain_routes.routes(answers, registry, bodies=bodies),
        tokens_routes.routes(service, called_tokenizer, registry, field_limits, bodies=bodies),
    ]
    batches = None
    if (objects := _objects(settings)) is not None:
        files = Files(objects, settings)
        batch_store = BatchStore(objects, most_open=settings.max_open_batches)
        batches = BatchRunner(
            batch_store,
            files,
            _streams(redis, "batches", StreamLimits(keep_s=0, kept_bytes=0)),
            lambda *request: app(*request),
            usage,
            BatchInput(
                objects,
                sandbox,
                most_bytes=settings.max_request_bytes,
                most_lines=settings.max_batch_lines,
            ),
            metrics.batches,
            at_once=partial(_batch_lines, scheduler),
        )
        owner = Owner(settings.has_one_caller)
        routers += batch_routes.routes(files, batch_store, batches, owner, bodies=bodies)
    if store is not None:
        from proxy.api.admin import admin_routes, limit_routes  # import the store's libraries

        routers += admin_routes.routers(store, store.audited_calls.read, bodies)
        routers += [limit_routes.routes(store, limiter, bodies)]
    # where anybody may do everything, there are no routes of pools and of others' requests
    if settings.auth != "off":
        routers += [recent_routes.routes(recent, bodies=bodies)]
    if operations is not None:
        routers += [
            kserve_routes.routes(
                operations.kserve,
                registry.internal_models,
                bodies=bodies,
                sandbox=sandbox,
                timeout_s=settings.request_timeout_s,
            )
        ]
    if operations is not None and settings.auth != "off":
        routers += pools_routes.routes(
            operations.pools,
            operations.decisions,
            lambda: registry.plans,
            operations.audit,
            scheduler,
            bodies=bodies,
        )
        routers += [log_level_routes.routes(operations.log_levels, operations.audit, bodies=bodies)]

    part: Callable[[], Mapping[str, Any]] = dict  # nothing
    if operations is not None and settings.auth != "off":
        part = partial(
            live_routes.operators_part,
            operations.pools,
            operations.decisions,
            lambda: registry.plans,
            scheduler,
        )
    live_status = live_routes.LiveStatus(metrics.registry, log, part, stopping=stopping)

    # what surrounds the routes
    journal = _journal(settings, metrics)
    relay = _relay(settings, redis, metrics)
    keyed = IdempotencyParts(
        relay=relay,
        bodies=bodies,
        limiter=limiter,
        metrics=metrics.idempotency,
        is_closed=settings.ledger_outage == "closed",
        has_one_caller=settings.has_one_caller,
    )
    denied = no_audit if store is None else store.audited_calls.denied

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        """Enters the parts in this order, and leaves them in the other."""
        async with contextlib.AsyncExitStack() as stack:
            for each in (
                None if operations is None else operations.log_levels,
                tracing,
                store,
                ledger,
                engine,  # what it is still sent at its end is counted
                journal,
                relay,
                None if callers is None else callers.running(),
                scheduler,
                capacities,
                shadows,
                in_background,
                batches,
            ):
                if each is not None:
                    await stack.enter_async_context(each)
            # before it listens: others may listen with it, and say that they are ready
            await asyncio.gather(
                readiness.refresh(catalog, registry, preparation.learn), sandbox.start()
            )
            watching = readiness.watch(catalog, registry, preparation.learn, metrics, recovery)
            tasks = [
                asyncio.create_task(each)
                for each in (watching, policy_watch.run(), live_status.run())
            ]
            with LoopLag(metrics.loop_lag).measured():
                yield
            await background.end(tasks)

    app = Application(
        running,
        metrics=metrics,
        log=log,
        limiter=limiter,
        charge=sandbox.count,
        gate=gate,
        scopes=scopes,
        hosts=hosts,
        authentication=None if callers is None else Authentication(callers, metrics, denied),
        opens_administration=settings.opens_administration,
        keyed=keyed,
        journal=journal,
        logs_content=settings.log_content,
        content=None if tracing is None else tracing.content,
        origins=settings.origins,
    )

    # pages that describe all other routes, and health
    def concerns() -> list[Concern]:
        found = [] if callers is None else callers.concerns()
        failing = [] if operations is None else operations.pools.concerns()
        return [*found, *limiter.concerns, *policy_watch.concerns, *failing]

    shown_scopes = scopes if settings.is_authenticated else None
    document = cached_document(routers, field_limits, registry, shown_scopes)
    metrics.registry.register(ModelInfo(registry))
    routers += [monitoring.routes(registry, metrics, ledger, concerns)]
    routers += [
        pages_routes.front_routes(
            __version__,
            tuple(routers),
            needs_key=settings.is_authenticated,
            has_page=settings.page,
        ),
        pages_routes.docs_routes(document),
        live_routes.routes(live_status),
    ]
    if settings.page:
        routers += [page_routes.routes()]
    for router in routers:
        app.take_routes(router)
    route_scopes.check(app.routes)
    # what the HTTP server needs of the application
    app.state.stopping, app.state.in_flight = stopping, in_flight
    app.state.policy_watch = policy_watch
    return app


def _models_file(settings: Settings) -> ModelsFile | None:
    """None: the settings name no models, and those that Triton has are served."""
    return policy.models(settings) if policy.has_models(settings) else None


def _redis(settings: Settings) -> RedisConnection | None:
    """The live state that several proxies share, if LEDGER_URL is set; None: it is in memory."""
    if settings.ledger_url_value is None:
        return None
    from proxy.state.redis_connection import RedisConnection  # takes 0.2 s to import

    return RedisConnection(settings.ledger_url_value, timeout_s=settings.ledger_timeout_ms / 1000)


def _ledger(settings: Settings, redis: RedisConnection | None) -> Ledger:
    if redis is None:
        return InProcessLedger()
    from proxy.state.redis_meters import RedisLedger

    return RedisLedger(redis, OutageMode(settings.ledger_outage))


def _scheduler(settings: Settings, metrics: Metrics) -> Scheduler:
    if settings.scheduling == "none":
        return FreeScheduler()
    return InProcessScheduler(settings, metrics.queues)


def _relay(settings: Settings, redis: RedisConnection | None, metrics: Metrics) -> Relay:
    most = KEPT_PART if redis is None else math.inf
    limits = AnswerLimits(
        grace_s=settings.idempotency_grace_s,
        resume_grace_s=settings.resume_grace_s,
        keep_s=settings.idempotency_keep_s,
        kept_bytes=within("MAX_KEPT_MB", settings.max_kept_mb, most),
        held_bytes=held_bytes(),
    )
    return Relay(_streams(redis, "kept-answers", limits), limits, metrics.idempotency)


def _responses(settings: Settings, redis: RedisConnection | None) -> StreamStore:
    most = KEPT_PART if redis is None else math.inf
    limits = StreamLimits(
        keep_s=settings.responses_keep_s,
        kept_bytes=within("MAX_RESPONSES_MB", settings.max_responses_mb, most),
    )
    return _streams(redis, "kept-responses", limits)


def _streams(redis: RedisConnection | None, kind: str, limits: StreamLimits) -> StreamStore:
    if redis is None:
        return MemoryStreams(limits)
    from proxy.state.redis_streams import RedisStreams

    return RedisStreams(redis, kind, limits)


def _objects(settings: Settings) -> Objects | None:
    """Where files and batches are kept, if anywhere.

    Raises:
        LaunchError: FILES_URL names no store, or its library is not installed.
    """
    if not (url := settings.files_url):
        return None
    if "://" not in url:
        return FolderObjects(Path(url))
    try:
        from proxy.state.remote_objects import RemoteObjects

        return RemoteObjects(url)
    except ValueError as error:
        raise LaunchError(f"FILES_URL is wrong: {error}") from None
    except ModuleNotFoundError as error:
        raise LaunchError(
            f"FILES_URL names a store, which needs {error.name}: pip install 'triton-openai[files]'"
        ) from None


def _batch_lines(scheduler: Scheduler) -> int:
    """How many lines of batches run at once: as many as there are rows. Those that no row is idle
    for wait in the queue, behind everybody.
    """
    rows = sum(state.capacity or 0 for state in scheduler.states())
    return min(max(rows, 1), MOST_BATCH_LINES)


def _journal(settings: Settings, metrics: Metrics) -> Journal | None:
    """None: there is no folder, so nothing is recorded."""
    if settings.record_dir is None:
        return None
    limits = JournalLimits(
        keep_days=settings.record_keep_days,
        bytes=int(settings.max_record_gb * 1_000_000_000),
        sample=settings.record_sample,
    )
    return Journal(
        settings.record_dir, limits, lambda outcome: metrics.records.labels(outcome).inc()
    )


def _tracing(settings: Settings, variables: Mapping[str, str], metrics: Metrics) -> Tracing | None:
    """None: no endpoint for traces is named.

    Raises:
        LaunchError: a variable of OpenTelemetry has a value that is not supported.
    """
    try:
        configuration = TraceConfiguration.read(variables)
    except WrongTraceVariable as error:
        raise LaunchError(str(error)) from None
    if configuration is None:
        return None
    # takes a quarter of a second, which only those pay who want traces
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    from proxy.telemetry.traces.tracing import CountedExporter, Tracing

    return Tracing(
        configuration,
        lambda: CountedExporter(
            configuration.endpoint, lambda outcome, spans: metrics.spans.labels(outcome).inc(spans)
        ),
        Resource.create({SERVICE_NAME: configuration.service}),
        slow_s=settings.trace_slow_s,
    )
