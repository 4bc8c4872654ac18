"""The way of a request, once: preparation, admission, the engine's streams, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass

from proxy.access.concurrency import LogProbBudget, ModelConcurrency
from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.start_gate import StartGate
from proxy.domain.endpoints import Decisions
from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.events import Events
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.record import RequestRecord, StageName, running_record
from proxy.domain.request import Delivery, GenerationRequest
from proxy.domain.sandbox import Sandbox
from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.domain.server_tools import ToolRunner
from proxy.generation.answer_streams import AnswerStreams, Means
from proxy.generation.prepare import Plan, Preparation
from proxy.generation.shadow import ShadowDeployments
from proxy.generation.stream.continuation import ContinuationLimits
from proxy.generation.stream.engine_stream import StreamMeans
from proxy.generation.stream.resending import Resending
from proxy.generation.stream.time_limits import TimeLimits
from proxy.language.structured import checks
from proxy.language.structured.checks import Checker
from proxy.language.structured.constraint_errors import MappedConstraintErrors
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.readiness import RecoveryQueue
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
    isolates_caches: bool = False
    hides_cached_tokens: bool = False
    queues_by_priority: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer while it is made. Closing the events ends the generation in the engine."""

    events: Events
    record: RequestRecord


USUAL_CONTINUATION = ContinuationLimits()


class Service:
    """Turns a request into events; closing the events early stops the engine.

    Args:
        max_resends: how often one stream is sent again that Triton lost before its first token.
        scheduler: entered and left by the caller; None: nobody waits for a row.
        decisions: operators'; None: what models.yaml says holds.
    """

    def __init__(
        self,
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
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._access = access
        self._means = Means(
            preparation=Preparation(
                sandbox,
                gate,
                access.limiter,
                DeploymentChooser(registry, decisions),
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
        )
        self._deprecations = DeprecationLog()

    def generate(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery = Delivery.HELD
    ) -> Generation:
        """Events that end with one Finished for each choice, or raise a ProxyError.

        Args:
            card: of the model that the request names.

        Raises:
            ModelUnavailable: at once.
        """
        self._registry.check_available()
        record = running_record()
        record.unenforced = checks.unenforced_keywords(request.constraint, card)
        record.lifecycle, record.fallback_from = card.lifecycle, request.fallback_from
        self._deprecations.note(card, current_caller.get().tenant)
        return Generation(events=self._events(request, card, delivery, record), record=record)

    async def engine_requests(
        self, request: GenerationRequest, card: ModelCard
    ) -> tuple[EngineRequest, ...]:
        """What the engine would be sent for each prompt. Raises as a generation does."""
        self._registry.check_available()
        return (await self._means.preparation.prepare(request, card)).engine_requests

    async def _events(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery, record: RequestRecord
    ) -> Events:
        caller = current_caller.get()
        is_held = delivery is Delivery.HELD or request.constraint is not None
        with self._metrics.counted(record, request, card):
            with record.stage(StageName.PLAN):
                plan = await self._means.preparation.prepare(request, card, record, is_held=is_held)
            card = plan.card
            reserving = self._access.limiter.reservation(
                caller,
                plan.request,
                card,
                plan.engine_requests,
                record,
                is_stream=delivery is Delivery.LIVE,
            )
            admitted = self._access.concurrency.permits(card, plan.request)
            limits = record.stage(StageName.LIMITS)
            async with reserving as reservation:
                holding = self._access.log_prob_budget.share() if is_held else NOT_HELD
                with admitted, holding as held:
                    limits.end()
                    if plan.is_guided:
                        await self._try_guide(plan, record)
                    streams = AnswerStreams(plan, delivery, record, held, reservation, self._means)
                    async with aclosing(streams.events()) as events:
                        async for event in events:
                            yield record.timed(event)

    async def _try_guide(self, plan: Plan, record: RequestRecord) -> None:
        """Raises as GuidePrecheck does, before anything else of the request is sent."""
        request = plan.engine_requests[0]

        async def try_once() -> None:
            await self._means.guide_precheck.check(request, plan.request.caller)

        since = asyncio.get_running_loop().time()
        checking = record.stage(StageName.GUIDE_CHECK)
        with checking, MappedConstraintErrors(plan.request.constraint):
            await self._means.streams.resending.retried(try_once, request, record, since=since)


NOT_HELD: AbstractContextManager[Callable[[int], None] | None] = nullcontext()
