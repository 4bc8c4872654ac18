"""The way of a request, once: plan, admission, the engine's streams, events.

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
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.events import Events
from proxy.domain.generation import Delivery, Generation, Report
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest
from proxy.domain.timeline import StageName, stage
from proxy.domain.watcher import Watcher
from proxy.generation.answer_streams import AnswerStreams, Means
from proxy.generation.plan import Plan
from proxy.generation.resending import Attempt
from proxy.generation.stopwatch import Stopwatch
from proxy.language.structured import checks
from proxy.language.structured.constraint_errors import MappedConstraintErrors
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.registry import Registry


class Service:
    """Turns a request into events; closing the events early stops the engine."""

    def __init__(
        self,
        registry: Registry,
        watcher: Watcher,
        concurrency: ModelConcurrency,
        limiter: RequestLimiter,
        log_prob_budget: LogProbBudget,
        means: Means,
        deprecations: DeprecationLog,
        deployments: DeploymentChooser,
    ) -> None:
        self._registry = registry
        self._watcher = watcher
        self._concurrency = concurrency
        self._limiter = limiter
        self._log_prob_budget = log_prob_budget
        self._means = means
        self._deprecations = deprecations
        self._deployments = deployments

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
        report = Report(
            unenforced=checks.unenforced_keywords(request.constraint, card),
            lifecycle=card.lifecycle,
            fallback_from=request.fallback_from,
        )
        self._deprecations.note(card, current_caller.get().tenant)
        return Generation(events=self._events(request, card, delivery, report), report=report)

    async def engine_requests(
        self, request: GenerationRequest, card: ModelCard
    ) -> tuple[EngineRequest, ...]:
        """What the engine would be sent for each prompt. Raises as a generation does."""
        self._registry.check_available()
        return (await self._planned(request, card)).engine_requests

    async def _events(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery, report: Report
    ) -> Events:
        stopwatch, caller = Stopwatch(report), current_caller.get()
        is_held = delivery is Delivery.HELD or request.constraint is not None
        with self._watcher.begin(request, card, report) as watch:
            request = self._limiter.capped(request, card, caller, report)
            with stage(StageName.PLAN):
                plan = await self._planned(request, card, is_held=is_held)
            card = plan.card
            reserving = self._limiter.reservation(
                *(caller, plan.request, card, plan.engine_requests, report),
                is_stream=delivery is Delivery.LIVE,
            )
            admitted = self._concurrency.permits(card, permits_needed(plan.request))
            limits = stage(StageName.LIMITS)
            async with reserving as reservation:
                with admitted, self._holding(is_held) as held:
                    limits.end()
                    await self._try_guide(plan, report)
                    streams = AnswerStreams(
                        plan, delivery, report, watch, held, reservation, self._means
                    )
                    async with aclosing(streams.events()) as events:
                        async for event in events:
                            yield stopwatch.timed(event)

    async def _planned(
        self, request: GenerationRequest, card: ModelCard, *, is_held: bool = False
    ) -> Plan:
        """The plan for the first build of the model that takes all parameters of the request."""
        refusal: InvalidRequest | None = None
        for each in self._deployments.cards(request, card):
            try:
                return await self._means.planner.plan(request, each, is_held=is_held)
            except InvalidRequest as error:
                if error.code is not ErrorCode.UNSUPPORTED_PARAMETER:
                    raise
                refusal = refusal or error
        assert refusal is not None  # there is at least one card
        raise refusal

    def _holding(self, is_held: bool) -> AbstractContextManager[LogProbShare | None]:
        return self._log_prob_budget.share() if is_held else NOT_HELD

    async def _try_guide(self, plan: Plan, report: Report) -> None:
        """Raises as GuidePrecheck does, before anything else of the request is sent."""
        if not plan.is_guided:
            return
        request = plan.engine_requests[0]

        async def try_once(_: Attempt) -> None:
            await self._means.guide_precheck.check(request, plan.request.caller)

        since = asyncio.get_running_loop().time()
        checking = stage(StageName.GUIDE_CHECK)
        with checking, MappedConstraintErrors(plan.request.constraint):
            await self._means.streams.resending.retried(try_once, request, report, since=since)


NOT_HELD: AbstractContextManager[None] = nullcontext()
