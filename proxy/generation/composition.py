"""Puts the parts of the service together. Called by `app`."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.access.concurrency import ModelConcurrency
from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.log_prob_budget import LogProbBudget
from proxy.access.request_size import RequestSizeLimits
from proxy.access.start_gate import StartGate
from proxy.domain.endpoints import Decisions
from proxy.domain.engine import Engine
from proxy.domain.sandbox import Sandbox
from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.domain.server_tools import ToolRunner
from proxy.domain.watcher import Watcher
from proxy.generation.answer_streams import Means
from proxy.generation.failover import ContinuationLimits, StreamMeans
from proxy.generation.planner import Planner
from proxy.generation.resending import Resending
from proxy.generation.service import Service
from proxy.generation.shadow_deployments import ShadowDeployments
from proxy.generation.time_limits import TimeLimits
from proxy.language.structured.checker import Checker
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.recovery_queue import RecoveryQueue
from proxy.models.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What bounds the requests of all callers together, and of each.

    isolates_caches: callers share no cached prefix. hides_cached_tokens: usage does not say how
    much of a prompt was cached, which would show what others have sent. queues_by_priority: the
    scheduler orders requests, so that no engine needs to.
    """

    concurrency: ModelConcurrency
    limiter: RequestLimiter
    guide_precheck: GuidePrecheck
    log_prob_budget: LogProbBudget
    request_size: RequestSizeLimits = field(default_factory=RequestSizeLimits)
    isolates_caches: bool = False
    hides_cached_tokens: bool = False
    queues_by_priority: bool = False


USUAL_CONTINUATION = ContinuationLimits()


def composed(
    registry: Registry,
    engine: Engine,
    watcher: Watcher,
    access: Access,
    tools: ToolRunner,
    sandbox: Sandbox,
    gate: StartGate,
    recovery_queue: RecoveryQueue,
    *,
    limits: TimeLimits,
    max_resends: int,
    continuing: ContinuationLimits = USUAL_CONTINUATION,
    scheduler: Scheduler | None = None,
    decisions: Decisions | None = None,
    shadows: ShadowDeployments,
) -> Service:
    """max_resends: how often one stream is sent again that Triton lost before its first token.

    scheduler: entered and left by the caller; None: nobody waits for a row. decisions: operators';
    None: what models.yaml says holds.
    """
    resending = _resending(
        *(registry, recovery_queue, engine, watcher, limits, max_resends, continuing.within_s)
    )
    means = Means(
        planner=_planner(sandbox, gate, access, limits),
        engine=engine,
        tools=tools,
        checker=Checker(sandbox),
        gate=gate,
        streams=_streams(resending, limits, watcher, continuing, scheduler),
        guide_precheck=access.guide_precheck,
        shadows=shadows,
        counts_cached=not access.hides_cached_tokens,
    )
    return Service(
        *(registry, watcher, access.concurrency, access.limiter, access.log_prob_budget, means),
        *(DeprecationLog(), DeploymentChooser(registry, decisions)),
    )


def _planner(sandbox: Sandbox, gate: StartGate, access: Access, limits: TimeLimits) -> Planner:
    return Planner(
        sandbox,
        gate,
        access.request_size,
        timeout_s=limits.whole_s,
        isolates_caches=access.isolates_caches,
        queues_by_priority=access.queues_by_priority,
    )


def _streams(
    resending: Resending,
    limits: TimeLimits,
    watcher: Watcher,
    continuing: ContinuationLimits,
    scheduler: Scheduler | None,
) -> StreamMeans:
    return StreamMeans(
        resending=resending,
        limits=limits,
        counter=watcher,
        continuing=continuing,
        scheduler=scheduler or FreeScheduler(),
    )


def _resending(
    registry: Registry,
    recovery_queue: RecoveryQueue,
    engine: Engine,
    watcher: Watcher,
    limits: TimeLimits,
    most: int,
    begun_s: float,
) -> Resending:
    return Resending(
        registry=registry,
        recovery_queue=recovery_queue,
        alternatives=engine,
        counter=watcher,
        most=most,
        whole_s=limits.whole_s,
        begun_s=begun_s,
    )
