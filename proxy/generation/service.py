"""The way of a request, once: preparation, admission, the engine's streams, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace

from proxy.access.concurrency import LogProbBudget, ModelConcurrency
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.engine import EngineRequest
from proxy.domain.events import Events, Finished
from proxy.domain.identity import current_caller
from proxy.domain.model import NO_END, ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord, Stage, StageName, running_record
from proxy.domain.request import (
    ChatPrompt,
    Delivery,
    GenerationRequest,
    PromptBatch,
    Sampling,
)
from proxy.generation.answer_streams import AnswerStreams, Means
from proxy.generation.decisions import AT_ONCE, Decisions, asks_of, check_decides
from proxy.generation.embeddings import at_once, batched, embedded
from proxy.generation.prepare import Plan
from proxy.language.structured import checks
from proxy.models.deprecation_log import DeprecationLog
from proxy.models.registry import Registry
from proxy.telemetry.generation_metrics import GenerationMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer while it is made. Closing the events ends the generation in the engine."""

    events: Events
    record: RequestRecord


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
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._concurrency = concurrency
        self._limiter = limiter
        self._log_prob_budget = log_prob_budget
        self._means = means
        self._deprecations = DeprecationLog()

    def generate(
        self,
        request: GenerationRequest,
        card: ModelCard,
        delivery: Delivery = Delivery.HELD,
        admitted: Callable[[], Awaitable[None]] | None = None,
    ) -> Generation:
        """Events that end with one Finished for each choice, or raise a ProxyError.

        Args:
            card: of the model that the request names.
            admitted: called when the request is within all limits.

        Raises:
            ModelUnavailable: at once.
        """
        record = self._begin(request, card)
        record.unenforced = checks.unenforced_keywords(request.constraint, card)
        events = self._events(request, card, delivery, record, admitted)
        return Generation(events=events, record=record)

    async def embed(self, request: GenerationRequest, card: ModelCard) -> list[bytes]:
        """A vector or a score for each prompt. Raises as a generation does, and as `embedded`."""
        record, means = self._begin(request, card), self._means
        with self._metrics.counted(record, request, card):
            plan = await means.preparation.prepare(request, card, record)
            card, asked = plan.card, plan.engine_requests[0]
            reserving = self._limiter.reservation(
                current_caller.get(), plan.request, card, [asked], record, is_stream=False
            )
            calls = batched(asked)
            running = replace(request, prompt=request.prompts[0], choices=at_once(asked, calls))
            async with reserving:
                with self._concurrency.permits(card, running):
                    found = await embedded(asked, calls, means.streams, record)
            record.finish = FinishReason.STOP
        return found

    async def decide(
        self, request: GenerationRequest, card: ModelCard, options: Sequence[int]
    ) -> list[list[float]]:
        """For each prompt the probabilities of its options. Raises as a generation does.

        options: how many each question has.
        """
        record, means = self._begin(request, card), self._means
        with self._metrics.counted(record, request, card):
            plan = await means.preparation.prepare(request, card, record)
            check_decides(plan.card)
            asks, prompt = asks_of(plan.engine_requests, options), plan.request.prompts[0]
            of_all = replace(plan.request, prompt=PromptBatch(prompts=(prompt,) * len(asks)))
            reserving = self._limiter.reservation(
                current_caller.get(), of_all, plan.card, asks, record, is_stream=False
            )
            at_once = min(AT_ONCE, len(options))
            running = replace(request, prompt=prompt, choices=at_once, sampling=Sampling())
            async with reserving as reservation:
                with self._concurrency.permits(plan.card, running):
                    if isinstance(prompt, ChatPrompt) and prompt.images:
                        plan = await self._with_images(plan, prompt, record)
                    decisions = Decisions(
                        plan=plan,
                        means=means.streams,
                        record=record,
                        reservation=reservation,
                        counts_cached=means.counts_cached,
                    )
                    found = await decisions.probabilities(options)
            record.finish = FinishReason.STOP
        return found

    async def _with_images(self, plan: Plan, prompt: ChatPrompt, record: RequestRecord) -> Plan:
        """With the images themselves. prompt: any of a batch, since all have the same images."""
        with Stage(StageName.IMAGES, record):
            fetched = await self._means.images.fetched(prompt, plan.request.caller)
        return plan.with_images(fetched.images)

    def _begin(self, request: GenerationRequest, card: ModelCard) -> RequestRecord:
        """Raises ModelUnavailable."""
        self._registry.check_available(card, or_held=True)
        record = running_record()
        record.lifecycle, record.fallback_from = card.lifecycle, request.fallback_from
        record.dropped_tools = request.dropped_tools
        if record.content is not None:
            record.content.ask(request)
        if card.lifecycle is not NO_END:
            self._deprecations.note(card, current_caller.get().tenant)
        return record

    async def engine_requests(
        self, request: GenerationRequest, card: ModelCard
    ) -> tuple[EngineRequest, ...]:
        """What the engine would be sent for each prompt. Raises as a generation does."""
        self._registry.check_available(card)
        return (await self._means.preparation.prepare(request, card)).engine_requests

    async def _events(
        self,
        request: GenerationRequest,
        card: ModelCard,
        delivery: Delivery,
        record: RequestRecord,
        admitted: Callable[[], Awaitable[None]] | None,
    ) -> Events:
        caller = current_caller.get()
        is_held = delivery is Delivery.HELD or request.constraint is not None
        with self._metrics.counted(record, request, card):
            with Stage(StageName.PLAN, record):
                plan = await self._means.preparation.prepare(request, card, record, is_held=is_held)
            card, record.priority = plan.card, plan.request.priority
            reserving = self._limiter.reservation(
                caller,
                plan.request,
                card,
                plan.engine_requests,
                record,
                is_stream=delivery is Delivery.LIVE,
            )
            permits = self._concurrency.permits(card, plan.request)
            limits = Stage(StageName.LIMITS, record)
            async with reserving as reservation:
                holding = self._log_prob_budget.share() if is_held else NOT_HELD
                with permits, holding as held:
                    limits.end()
                    if admitted is not None:
                        await admitted()
                    prompt = plan.request.prompt
                    if isinstance(prompt, ChatPrompt) and prompt.images:
                        plan = await self._with_images(plan, prompt, record)
                    streams = AnswerStreams(plan, delivery, record, held, reservation, self._means)
                    async with aclosing(streams.events()) as events:
                        async for event in events:
                            is_noted = record.first_event_s is not None and record.content is None
                            if record.first_event_s is None:
                                note_room(plan.request, card, record)
                            if not is_noted or isinstance(event, Finished):
                                event = record.timed(event)
                            yield event


def note_room(request: GenerationRequest, card: ModelCard, record: RequestRecord) -> None:
    """Notes that the context had less room than `max_tokens`, once the prompt is counted."""
    asked = request.max_tokens
    if asked is None or request.token_cap is None or (usage := record.usage) is None:
        return
    room = card.facts.context_length - usage.prompt_tokens
    if card.facts.says_context and room < asked:
        record.clamped_max_tokens = room


NOT_HELD: AbstractContextManager[Callable[[int], None] | None] = nullcontext()
