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
from proxy.generation.answer_streams import Means
from proxy.generation.prepare import Preparation
from proxy.generation.service import Service
from proxy.generation.shadow import ShadowDeployments
from proxy.generation.stream.continuation import ContinuationLimits
from proxy.generation.stream.engine_stream import StreamMeans
from proxy.generation.stream.resending import Resending
from proxy.generation.stream.time_limits import TimeLimits
from proxy.language.structured.checks import Checker
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.recovery_queue import RecoveryQueue
from proxy.models.registry import Registry
from proxy.telemetry.generation_metrics import GenerationMetrics


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
    metrics: GenerationMetrics,
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
    return Service(
        registry,
        metrics,
        access.concurrency,
        access.limiter,
        access.log_prob_budget,
        Means(
            preparation=Preparation(
                sandbox,
                gate,
                access.limiter,
                DeploymentChooser(registry, decisions),
                access.request_size,
                timeout_s=limits.whole_s,
                isolates_caches=access.isolates_caches,
                queues_by_priority=access.queues_by_priority,
            ),
            engine=engine,
            tools=tools,
            checker=Checker(sandbox),
            gate=gate,
            streams=StreamMeans(
                resending=Resending(
                    registry=registry,
                    recovery_queue=recovery_queue,
                    engine=engine,
                    most=max_resends,
                    whole_s=limits.whole_s,
                    begun_s=continuing.within_s,
                ),
                limits=limits,
                continuing=continuing,
                scheduler=scheduler or FreeScheduler(),
            ),
            guide_precheck=access.guide_precheck,
            shadows=shadows,
            counts_cached=not access.hides_cached_tokens,
        ),
        DeprecationLog(),
    )
