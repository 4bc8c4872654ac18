"""The composition root: the only place that knows every part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from build_engines.models_file import ModelsFile
from proxy import (
    background,
    configured_idempotency,
    configured_journal,
    configured_limits,
    configured_pools,
    configured_routes,
    configured_scheduling,
    configured_store,
    configured_telemetry,
)
from proxy.access.authentication import composition as authentication
from proxy.access.limits.charged_sandbox import ChargedSandbox
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.start_gate import StartGate
from proxy.api import log_level_routes, monitoring, route_scopes
from proxy.api.application import application
from proxy.api.authentication import no_audit
from proxy.api.bodies.body_reader import BodyReader
from proxy.api.bodies.bytes_in_flight import BytesInFlight
from proxy.api.kserve import kserve_routes
from proxy.api.pools import pools_routes
from proxy.api.recent import requests_routes
from proxy.configured_pools import Operations
from proxy.configured_scheduling import Queues
from proxy.domain.engine import Catalog, Engine
from proxy.domain.health import Concern
from proxy.domain.key_records import KeySource
from proxy.domain.kserve import KserveBackend
from proxy.domain.sandbox import Sandbox
from proxy.domain.scheduling import Scheduler
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageStore
from proxy.generation.composition import composed
from proxy.generation.shadow_deployments import ShadowDeployments
from proxy.models import policy, readiness
from proxy.models.internal_models import internal_models
from proxy.models.listed_deployments import ListedDeployments
from proxy.models.policy_watch import PolicyWatch, rereads_secrets
from proxy.models.recovery_queue import RecoveryQueue
from proxy.models.registry import Registry
from proxy.pools.pooled_engine import PooledCatalog, PooledEngine, PooledTokenizer
from proxy.pools.router import Router
from proxy.process_sandbox import ProcessSandbox
from proxy.server_tools.http_tools import HttpToolRunner
from proxy.settings import Settings, environment
from proxy.state.meters import Ledger
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observers import Observers
from proxy.telemetry.recent_requests import RecentRequests
from proxy.telemetry.request_watcher import TelemetryWatcher

if TYPE_CHECKING:
    from proxy.access.store.store import Store


def create_app(settings: Settings) -> FastAPI:
    """The proxy in front of the Tritons that the settings and models.yaml name.

    Raises:
        ModelsFileError: models.yaml cannot be read, is invalid, or needs a variable not set.
        UnservableFolder: MODEL_PATH holds no model.
        MissingPackage: only the build tools can name the model in MODEL_PATH.
        LaunchError: TRITON_URL does not say where endpoints are found.
    """
    sandbox = ProcessSandbox(configured_limits.sandbox_limits(settings))
    metrics = Metrics(tenants=settings.metrics_tenants)
    store = configured_store.store(settings)
    found, counter = _models(settings), EndpointMetrics(metrics.registry)
    operations = configured_pools.operations(settings, found, environment(), counter, store)
    pools = operations.pools
    return compose(
        settings,
        PooledEngine(pools, Router(pools), counter),
        PooledCatalog(pools),
        PooledTokenizer(pools),
        sandbox,
        store=store,
        metrics=metrics,
        operations=operations,
        found=found,
    )


def _models(settings: Settings) -> ModelsFile | None:
    """None: the settings name no models, and those that Triton has are served."""
    return policy.models(settings) if policy.has_models(settings) else None


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
    found: ModelsFile | None = None,
    scheduler: Scheduler | None = None,
) -> FastAPI:
    """The proxy over any engine. keys, usage, scheduler: others than those of store and settings.
    found: models.yaml, if it was read already.
    """
    metrics = Metrics(tenants=settings.metrics_tenants) if metrics is None else metrics
    keys, usage = configured_store.keys_and_usage(store, keys, usage)
    callers = authentication.authenticator(settings, keys, metrics)
    ledger = configured_limits.ledger(settings)
    if store is not None and settings.ledger_url is None:
        usage_writer = store.usage
        metrics.unshared_proxies.set_function(lambda: usage_writer.others)
    limiter = configured_limits.limiter(settings, metrics, ledger, tokenizer, usage)
    sandbox = ChargedSandbox(sandbox, limiter)
    queues = _queues(scheduler, settings, ledger, metrics, operations)
    ports = (engine, catalog, tokenizer, sandbox, metrics, limiter, queues)
    parts = Parts(settings, found or _models(settings), operations, *ports)
    routers = parts.adapters() + _administration(settings, store, operations, parts)
    keyed = configured_idempotency.layer_parts(settings, parts.bodies, ledger, limiter, metrics)
    denied = no_audit if store is None else store.denied_calls.add
    journal = configured_journal.journal(settings, metrics)
    tracing = configured_telemetry.tracing(settings, environment(), metrics)
    observer = Observers(tracing, parts.recent)
    layers = (settings, metrics, parts.gate, limiter, routers, callers, denied, keyed, observer)
    app = application(
        configured_routes.layers(*layers, journal, None if tracing is None else tracing.content),
        lambda _: parts.running(
            None if operations is None else operations.log_levels,
            *(tracing, store, engine, ledger, journal, keyed.relay),
            None if callers is None else callers.running(),
            queues,
        ),
    )
    parts.export(app)
    exposed = configured_telemetry.exposition(settings, metrics, parts.registry)
    metrics.ledger_up.set_function(lambda: limiter.is_ledger_up)

    def concerns() -> list[Concern]:
        found = [] if callers is None else callers.concerns()
        return [*found, *limiter.concerns, *parts.watch.concerns]

    health = monitoring.routes(parts.registry, exposed, ledger, concerns)
    return _with_routes(app, (*routers, health), settings, parts.registry)


def _queues(
    scheduler: Scheduler | None,
    settings: Settings,
    ledger: Ledger,
    metrics: Metrics,
    operations: Operations | None,
) -> Queues:
    if scheduler is not None:
        return Queues(scheduler)
    pools = None if operations is None else operations.pools
    return configured_scheduling.queues(settings, ledger, metrics.queues, pools)


def _with_routes(
    app: FastAPI, routers: tuple[APIRouter, ...], settings: Settings, registry: Registry
) -> FastAPI:
    """Raises ValueError: a route has no scope."""
    for router in configured_routes.with_pages(app, routers, settings, registry):
        app.include_router(router)
    route_scopes.check(app.routes)
    return app


class Parts:
    """What the adapters stand on: registry, service, and what keeps both up to date."""

    def __init__(
        self,
        settings: Settings,
        found: ModelsFile | None,
        operations: Operations | None,
        engine: Engine,
        catalog: Catalog,
        tokenizer: Tokenizer,
        sandbox: Sandbox,
        metrics: Metrics,
        limiter: RequestLimiter,
        queues: Queues,
    ) -> None:
        self.gate, entries = StartGate(), {} if found is None else found.models
        self.registry = Registry(
            entries,
            configured_limits.request_limits(settings),
            callers_control_tokens=settings.callers_control_tokens,
            is_available=catalog.is_available,
            rows=catalog.rows,
        )
        self._settings, self._tokenizer, self._sandbox = settings, tokenizer, sandbox
        self.queues = queues
        self._catalog, self._metrics, self._recovery = catalog, metrics, RecoveryQueue(self.gate)
        tools = HttpToolRunner(policy.secrets(entries, environment()))
        files = (settings, found, self.registry)
        self.watch = PolicyWatch(*files, (rereads_secrets(tools),), metrics.models_file_valid)
        self._shadows = ShadowDeployments(self.registry, engine, metrics.shadow, queues.scheduler)
        self._service = composed(
            *(self.registry, engine, TelemetryWatcher(metrics)),
            configured_limits.access(settings, tokenizer, self.registry, limiter),
            tools,
            *(sandbox, self.gate, self._recovery),
            limits=configured_limits.time_limits(settings),
            max_resends=settings.max_resends,
            scheduler=queues.scheduler,
            continuing=configured_limits.continuation_limits(settings),
            decisions=None if operations is None else operations.decisions,
            shadows=self._shadows,
        )
        self.recent = RecentRequests(settings.recent_requests)
        self._stopping, self._in_flight = asyncio.Event(), BytesInFlight(settings.max_bodies_bytes)
        self.bodies = BodyReader(configured_limits.body_limits(settings), sandbox, self._in_flight)

    def adapters(self) -> tuple[APIRouter, ...]:
        """Every protocol over the one service."""
        return configured_routes.adapters(
            *(self._settings, self._service, self.registry, self._tokenizer, self._sandbox),
            *(self._stopping, self.bodies),
        )

    def kserve(self, backend: KserveBackend) -> APIRouter:
        """Any other model of the Tritons."""
        return kserve_routes.routes(
            backend,
            lambda: internal_models(self.registry),
            bodies=self.bodies,
            sandbox=self._sandbox,
            timeout_s=self._settings.request_timeout_s,
        )

    def export(self, app: FastAPI) -> None:
        """What the HTTP server needs of the application."""
        app.state.stopping, app.state.in_flight = self._stopping, self._in_flight
        app.state.policy_watch = self.watch

    @contextlib.asynccontextmanager
    async def running(
        self, *others: contextlib.AbstractAsyncContextManager[object] | None
    ) -> AsyncIterator[None]:
        """others: enter before, in this order, and leave after, in the other."""
        async with contextlib.AsyncExitStack() as stack:
            for each in filter(None, others):
                await stack.enter_async_context(each)
            await stack.enter_async_context(self._shadows)
            # before it listens: others may listen with it, and say that they are ready
            await asyncio.gather(
                readiness.refresh(self._catalog, self.registry), self._sandbox.start()
            )
            watching = readiness.watch(self._catalog, self.registry, self._metrics, self._recovery)
            tasks = [asyncio.create_task(each) for each in (watching, self.watch.run())]
            lag = LoopLag(self._metrics.loop_lag, warn_s=self._settings.loop_lag_warn_ms / 1000)
            with lag.measured():
                yield
            await background.end(tasks)


def _administration(
    settings: Settings, store: Store | None, operations: Operations | None, parts: Parts
) -> tuple[APIRouter, ...]:
    """Routes for operators. Where anybody may do everything, none of pools and others' requests."""
    routers = () if store is None else configured_store.routes(store, parts.bodies)
    if settings.auth != "off":
        routers += (requests_routes.routes(parts.recent, bodies=parts.bodies),)
    if operations is not None:
        routers += (parts.kserve(operations.kserve),)
        if settings.auth != "off":
            routers += _operating(operations, parts)
    return routers


def _operating(operations: Operations, parts: Parts) -> tuple[APIRouter, ...]:
    levels, audit = operations.log_levels, operations.audit
    pools = pools_routes.routes(
        operations.pools,
        operations.decisions,
        ListedDeployments(parts.registry),
        audit,
        parts.queues.scheduler,
        bodies=parts.bodies,
    )
    return (*pools, log_level_routes.routes(levels, audit, bodies=parts.bodies))
