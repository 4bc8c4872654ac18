"""The way of a request, once: prompt, engine, text, stops, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from triton_openai.proxy.access.guide_precheck import GuidePrecheck
from triton_openai.proxy.access.log_prob_budget import LogProbBudget, LogProbShare
from triton_openai.proxy.access.model_concurrency import ModelConcurrency
from triton_openai.proxy.access.request_size import (
    RequestSizeLimits,
    apply_model_limits,
    permits_needed,
)
from triton_openai.proxy.access.start_gate import StartGate
from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.engine import Engine, EngineRequest
from triton_openai.proxy.domain.events import Events
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.domain.sandbox import Sandbox
from triton_openai.proxy.domain.server_tools import ToolRunner
from triton_openai.proxy.domain.watcher import RequestWatch, Watcher
from triton_openai.proxy.generation.generation import Generation, Means
from triton_openai.proxy.generation.preparation import Preparation
from triton_openai.proxy.generation.resending import Resending
from triton_openai.proxy.generation.rules import RuleBook
from triton_openai.proxy.generation.stopwatch import Stopwatch
from triton_openai.proxy.generation.time_limits import TimeLimits
from triton_openai.proxy.models.recovery_queue import RecoveryQueue
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.server_tools.tool_offer import offer_server_tools
from triton_openai.proxy.structured import checks
from triton_openai.proxy.structured.checker import Checker
from triton_openai.proxy.structured.constraint_errors import MappedConstraintErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What bounds the requests of all callers together, and of each.

    isolates_caches: callers share no cached prefix. hides_cached_tokens: nobody learns how much of
    a prompt was cached, which shows what others have sent.
    """

    admission: ModelConcurrency
    trials: GuidePrecheck
    held: LogProbBudget
    products: RequestSizeLimits = field(default_factory=RequestSizeLimits)
    isolates_caches: bool = False
    hides_cached_tokens: bool = False


class Service:
    """Turns a request into events; closing the events early stops the engine."""

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        watcher: Watcher,
        access: Access,
        tools: ToolRunner,
        sandbox: Sandbox,
        gate: StartGate,
        comeback: RecoveryQueue,
        *,
        limits: TimeLimits,
        max_resends: int,
    ) -> None:
        self._registry = registry
        self._watcher = watcher
        self._access = access
        self._sandbox = sandbox
        self._rule_book = RuleBook(sandbox)
        self._limits = limits
        self._means = Means(
            engine=engine,
            tools=tools,
            checker=Checker(sandbox),
            gate=gate,
            limits=limits,
            resending=Resending(
                registry=registry,
                comeback=comeback,
                counter=watcher,
                most=max_resends,
                whole_s=limits.whole_s,
            ),
            trials=access.trials,
            counts_cached=not access.hides_cached_tokens,
        )

    def generate(self, request: GenerationRequest, delivery: Delivery | None = None) -> Events:
        """Events that end with one Finished, or raise a ProxyError.

        Raises:
            UnknownModel, ModelUnavailable, InvalidRequest: at once.
        """
        card = self._registry.card(request.model)
        request = offer_server_tools(request, card)
        delivery = delivery or Delivery()
        watch = self._watcher.begin(request, card, delivery)
        return watch.events(self._events(request, card, delivery, watch))

    async def engine_request(self, request: GenerationRequest) -> EngineRequest:
        """What the engine would get, for those who only want to know. Raises as `generate` does."""
        card = self._registry.card(request.model)
        with MappedConstraintErrors(request.constraint):
            request = apply_model_limits(offer_server_tools(request, card), card)
            return await self._preparation(card).engine_request(request)

    async def _events(
        self,
        request: GenerationRequest,
        card: ModelCard,
        delivery: Delivery,
        watch: RequestWatch,
    ) -> Events:
        request = apply_model_limits(request, card)
        delivery.unenforced = checks.unenforced_keywords(request.constraint, card)
        is_held = not delivery.is_live or request.constraint is not None
        if is_held:
            request = self._access.products.limit_log_probs(request, card)
        stopwatch, count = Stopwatch(), permits_needed(request)
        with self._access.admission.permits(card, count), self._holding(is_held) as held:
            first, preparation = request.part(0), self._preparation(card)
            await self._admit(request, first, preparation)
            generation = Generation(card, delivery, preparation, held, watch, self._means)
            async with aclosing(generation.events(request, first)) as events:
                async for event in events:
                    yield stopwatch.seen(event)

    @contextmanager
    def _holding(self, is_held: bool) -> Iterator[LogProbShare | None]:
        if not is_held:
            yield None
            return
        with self._access.held.share() as held:
            yield held

    def _preparation(self, card: ModelCard) -> Preparation:
        return Preparation(
            card,
            self._sandbox,
            self._rule_book,
            timeout_s=self._limits.whole_s,
            isolates_caches=self._access.isolates_caches,
        )

    async def _admit(
        self, request: GenerationRequest, first: GenerationRequest, preparation: Preparation
    ) -> None:
        """Refuses what can be refused before anything is generated. `first`: of its parts."""
        with MappedConstraintErrors(request.constraint):
            asked = await preparation.engine_request(first)
            texts = [asked.text]
            for index in range(request.candidates, request.generations, request.candidates):
                await self._means.gate.wait()
                texts.append(await preparation.text(request.part(index)))
            self._access.products.check_copies(request, texts)
            await self._try_guide(asked, request.caller)

    async def _try_guide(self, asked: EngineRequest, caller: str) -> None:
        async def tried(_: int) -> None:
            await self._access.trials.check(asked, caller)

        since = asyncio.get_running_loop().time()
        await self._means.resending.begun(tried, asked.model, since=since)
