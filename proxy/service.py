"""The way of a request, once: prompt, engine, text, stops, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from proxy import parsers
from proxy.access.admission import Admission
from proxy.access.guide_trials import GuideTrials
from proxy.access.held_log_probs import Held, HeldLogProbs
from proxy.access.products import ProductLimits
from proxy.candidates import best, interleaved
from proxy.choice import Choice
from proxy.domain.delivery import Delivery
from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import EngineFailed
from proxy.domain.events import Events
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import GenerationRequest
from proxy.domain.sandbox import Sandbox
from proxy.domain.server_tools import ToolRunner
from proxy.preparation import Preparation
from proxy.registry import Registry
from proxy.rules import RuleBook, Rules
from proxy.server_tools.loop import looped
from proxy.server_tools.offer import offered
from proxy.start_gate import StartGate
from proxy.structured import checks
from proxy.structured.attempts import Attempts
from proxy.structured.blame import blamed
from proxy.structured.checker import Checker
from proxy.time_limits import TimeLimits, limited
from proxy.timing import Stopwatch

Deltas = AsyncGenerator[TokenDelta, None]


class Watcher(Protocol):
    """Sees the events of a request go by; telemetry's side of the service."""

    def watch(self, request: GenerationRequest, card: ModelCard, events: Events) -> Events: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What bounds the requests of all callers together, and of each.

    isolates_caches: callers share no cached prefix. hides_cached_tokens: nobody learns how much of
    a prompt was cached, which shows what others have sent.
    """

    admission: Admission
    trials: GuideTrials
    held: HeldLogProbs
    products: ProductLimits = field(default_factory=ProductLimits)
    isolates_caches: bool = False
    hides_cached_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the choices of one request share."""

    card: ModelCard
    delivery: Delivery
    preparation: Preparation
    held: Held | None  # None: log-probabilities are passed on as they come


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
        *,
        limits: TimeLimits,
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._watcher = watcher
        self._access = access
        self._tools = tools
        self._sandbox = sandbox
        self._rule_book = RuleBook(sandbox)
        self._checker = Checker(sandbox)
        self._gate = gate
        self._limits = limits

    def generate(self, request: GenerationRequest, delivery: Delivery | None = None) -> Events:
        """Events that end with one Finished, or raise a ProxyError.

        Raises:
            UnknownModel, ModelUnavailable, InvalidRequest: at once.
        """
        card = self._registry.card(request.model)
        request = offered(request, card)
        events = self._events(request, card, delivery or Delivery())
        return self._watcher.watch(request, card, events)

    async def engine_request(self, request: GenerationRequest) -> EngineRequest:
        """What the engine would get, for those who only want to know. Raises as `generate` does."""
        card = self._registry.card(request.model)
        with blamed(request.constraint):
            request = offered(request, card)
            return await self._preparation(card).engine_request(request)

    async def _events(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery
    ) -> Events:
        delivery.unenforced = checks.untold(request.constraint, card)
        is_held = not delivery.is_live or request.constraint is not None
        if is_held:
            request = self._access.products.bounded_log_probs(request, card)
        parts, stopwatch = request.parts(), Stopwatch()
        with self._access.admission.permits(card, len(parts)), self._holding(is_held) as held:
            preparation = self._preparation(card)
            await self._admit(request, parts[0], preparation)
            run = _Run(card=card, delivery=delivery, preparation=preparation, held=held)
            async with aclosing(self._choices(request, parts, run)) as events:
                async for event in events:
                    yield stopwatch.seen(event)

    @contextmanager
    def _holding(self, is_held: bool) -> Iterator[Held | None]:
        if not is_held:
            yield None
            return
        with self._access.held.held() as held:
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
        with blamed(request.constraint):
            asked = await preparation.engine_request(first)
            texts = [
                await preparation.text(replace(first, prompt=prompt)) for prompt in request.prompts
            ]
            self._access.products.check_copies(request, texts)
            await self._access.trials.passed(asked, request.caller)

    def _choices(
        self, request: GenerationRequest, parts: tuple[GenerationRequest, ...], run: _Run
    ) -> Events:
        if len(parts) == 1:
            return self._answer(parts[0], 0, run, counts_prompt=True)
        choices = [
            partial(self._answer, part, index, run, counts_prompt=index % request.candidates == 0)
            for index, part in enumerate(parts)
        ]
        events = interleaved(choices, self._gate)
        if request.candidates == request.choices:
            return events
        return best(events, candidates=request.candidates, choices=request.choices)

    def _answer(
        self, request: GenerationRequest, index: int, run: _Run, *, counts_prompt: bool
    ) -> Events:
        """One choice, through calls of the server's tools; each of its rounds must conform."""

        def round_of(asked: GenerationRequest) -> Events:
            if asked is not request:
                return self._later_round(asked, index, run)
            return self._conforming(asked, index, run, counts_prompt=counts_prompt)

        return looped(round_of, request, run.card.server_tools, self._tools)

    async def _later_round(self, request: GenerationRequest, index: int, run: _Run) -> Events:
        """After calls of the server's tools: other tools may or must be called now."""
        await run.preparation.rules(request)
        events = self._conforming(request, index, run, counts_prompt=True)
        async with aclosing(events):
            async for event in events:
                yield event

    def _conforming(
        self, request: GenerationRequest, index: int, run: _Run, *, counts_prompt: bool
    ) -> Events:
        def generate(request: GenerationRequest, counts_prompt: bool) -> Events:
            return self._choice(request, index, run, counts_prompt=counts_prompt)

        card, delivery = run.card, run.delivery
        check = run.preparation.known_rules(request).check
        if check is None:
            return generate(request, counts_prompt)
        attempts = Attempts(
            check=check,
            checker=self._checker,
            caller=request.caller,
            at_most=card.max_retries + 1,
            delivery=delivery,
        )
        if delivery.is_live and card.streams_unchecked:
            return attempts.live(generate(request, counts_prompt))
        return attempts.held_back(generate, request, counts_prompt=counts_prompt)

    async def _choice(
        self, request: GenerationRequest, index: int, run: _Run, *, counts_prompt: bool
    ) -> Events:
        """All of a choice's streams. One generator: each on the way of an event costs as much as
        writing it out.
        """
        card, held = run.card, run.held
        with blamed(request.constraint):
            rules = await run.preparation.rules(request)
            asked = await run.preparation.engine_request(request)
            prompt = asked.text or ""
            choice = self._new_choice(request, index, card, prompt, rules, counts_prompt)
            while not choice.is_finished:
                if choice.has_thought_enough:
                    text, events = choice.end_thought(rules.closing)
                    guide = rules.guide(prompt, has_thought=True)
                    asked = asked.continued(text, choice.tokens, guide)
                    for event in events:
                        yield event
                async with aclosing(self._deltas(asked)) as deltas:
                    async for delta in deltas:
                        if held is not None and delta.log_probs:
                            held.add(_entries(delta))
                        for event in choice.push(delta):
                            yield event
                        if choice.is_finished or choice.has_thought_enough:
                            break
                    else:
                        raise EngineFailed("The engine's stream ended without a finish reason.")

    def _new_choice(
        self,
        request: GenerationRequest,
        index: int,
        card: ModelCard,
        prompt: str,
        rules: Rules,
        counts_prompt: bool,
    ) -> Choice:
        return Choice(
            request,
            card,
            index,
            counts_prompt=counts_prompt,
            counts_cached=not self._access.hides_cached_tokens,
            parser=parsers.parser_of(request, card, prompt, rules.tool_family),
            specials=parsers.visible_specials(request, card),
        )

    def _deltas(self, asked: EngineRequest) -> Deltas:
        return limited(self._engine.generate(asked), self._limits)


def _entries(delta: TokenDelta) -> int:
    """Log-probabilities: the tokens' own, and alternatives, which are as many for each."""
    return len(delta.log_probs) * (1 + len(delta.log_probs[-1].top))
