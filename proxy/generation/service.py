"""The way of a request, once: preparation, admission, the engine's streams, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, aclosing, nullcontext

from proxy.access.concurrency import ModelConcurrency
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.log_prob_budget import LogProbBudget, LogProbShare
from proxy.access.request_size import permits_needed
from proxy.domain.engine import EngineRequest
from proxy.domain.events import Events
from proxy.domain.generation import Delivery, Generation
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.record import RequestRecord, StageName, running_record, stage
from proxy.domain.request import GenerationRequest
from proxy.generation.answer_streams import AnswerStreams, Means
from proxy.generation.prepare import Plan
from proxy.language.structured import checks
from proxy.language.structured.constraint_errors import MappedConstraintErrors
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.registry import Registry
from proxy.telemetry.generation_metrics import GenerationMetrics


class Service:
    """Turns a request into events; closing the events early stops the engine."""

    def __init__(
        self,
        registry: Registry,
        metrics: GenerationMetrics,
        concurrency: ModelConcurrency,
        limiter: RequestLimiter,
        log_prob_budget: LogProbBudget,
        means: Means,
        deprecations: DeprecationLog,
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._concurrency = concurrency
        self._limiter = limiter
        self._log_prob_budget = log_prob_budget
        self._means = means
        self._deprecations = deprecations

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
            with stage(StageName.PLAN):
                plan = await self._means.preparation.prepare(request, card, record, is_held=is_held)
            card = plan.card
            reserving = self._limiter.reservation(
                caller,
                plan.request,
                card,
                plan.engine_requests,
                record,
                is_stream=delivery is Delivery.LIVE,
            )
            admitted = self._concurrency.permits(card, permits_needed(plan.request))
            limits = stage(StageName.LIMITS)
            async with reserving as reservation:
                with admitted, self._holding(is_held) as held:
                    limits.end()
                    await self._try_guide(plan, record)
                    streams = AnswerStreams(plan, delivery, record, held, reservation, self._means)
                    async with aclosing(streams.events()) as events:
                        async for event in events:
                            yield record.timed(event)

    def _holding(self, is_held: bool) -> AbstractContextManager[LogProbShare | None]:
        return self._log_prob_budget.share() if is_held else NOT_HELD

    async def _try_guide(self, plan: Plan, record: RequestRecord) -> None:
        """Raises as GuidePrecheck does, before anything else of the request is sent."""
        if not plan.is_guided:
            return
        request = plan.engine_requests[0]

        async def try_once() -> None:
            await self._means.guide_precheck.check(request, plan.request.caller)

        since = asyncio.get_running_loop().time()
        checking = stage(StageName.GUIDE_CHECK)
        with checking, MappedConstraintErrors(plan.request.constraint):
            await self._means.streams.resending.retried(try_once, request, record, since=since)


NOT_HELD: AbstractContextManager[None] = nullcontext()
