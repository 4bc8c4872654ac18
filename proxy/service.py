"""The way of a request, once: prompt, engine, text, stops, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from typing_extensions import assert_never

from proxy import infilling, parsers, prompting
from proxy.access.concurrency import Concurrency
from proxy.candidates import best, interleaved
from proxy.choice import Choice
from proxy.domain.delivery import Delivery
from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import EngineFailed, InvalidRequest
from proxy.domain.events import Events
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.sandbox import Sandbox
from proxy.domain.server_tools import ToolRunner
from proxy.registry import Registry
from proxy.rules import RuleBook, Rules
from proxy.server_tools.loop import looped
from proxy.server_tools.offer import offered
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


class Service:
    """Turns a request into events; closing the events early stops the engine."""

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        watcher: Watcher,
        concurrency: Concurrency,
        tools: ToolRunner,
        sandbox: Sandbox,
        *,
        limits: TimeLimits,
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._watcher = watcher
        self._concurrency = concurrency
        self._tools = tools
        self._rule_book = RuleBook(sandbox)
        self._checker = Checker(sandbox)
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
            return self._asked(request, card, await self._rule_book.rules(request, card))

    async def _events(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery
    ) -> Events:
        delivery.unenforced = checks.untold(request.constraint, card)
        stopwatch = Stopwatch()
        async with self._concurrency.permit():
            rules = await self._rule_book.rules(request, card)
            async with aclosing(self._choices(request, card, rules, delivery)) as events:
                async for event in events:
                    yield stopwatch.seen(event)

    def _choices(
        self, request: GenerationRequest, card: ModelCard, rules: Rules, delivery: Delivery
    ) -> Events:
        parts = request.parts()
        choices = [
            self._answer(
                part, card, rules, index, delivery, counts_prompt=index % request.candidates == 0
            )
            for index, part in enumerate(parts)
        ]
        if len(parts) == 1:
            return choices[0]
        events = interleaved(choices)
        if request.candidates == request.choices:
            return events
        return best(events, candidates=request.candidates, choices=request.choices)

    def _answer(
        self,
        request: GenerationRequest,
        card: ModelCard,
        rules: Rules,
        index: int,
        delivery: Delivery,
        *,
        counts_prompt: bool,
    ) -> Events:
        """One choice, through calls of the server's tools; each of its rounds must conform."""

        def round_of(asked: GenerationRequest) -> Events:
            if asked is not request:
                return self._later_round(asked, card, index, delivery)
            return self._conforming(
                asked, card, rules, index, delivery, counts_prompt=counts_prompt
            )

        return looped(round_of, request, card.server_tools, self._tools)

    async def _later_round(
        self, request: GenerationRequest, card: ModelCard, index: int, delivery: Delivery
    ) -> Events:
        """After calls of the server's tools: other tools may or must be called now."""
        rules = await self._rule_book.rules(request, card)
        events = self._conforming(request, card, rules, index, delivery, counts_prompt=True)
        async with aclosing(events):
            async for event in events:
                yield event

    def _conforming(
        self,
        request: GenerationRequest,
        card: ModelCard,
        rules: Rules,
        index: int,
        delivery: Delivery,
        *,
        counts_prompt: bool,
    ) -> Events:
        def generate(request: GenerationRequest, counts_prompt: bool) -> Events:
            return self._choice(request, card, rules, index, counts_prompt=counts_prompt)

        if rules.check is None:
            return generate(request, counts_prompt)
        attempts = Attempts(
            check=rules.check,
            checker=self._checker,
            caller=request.caller,
            at_most=card.max_retries + 1,
            delivery=delivery,
        )
        if delivery.is_live and card.streams_unchecked:
            return attempts.live(generate(request, counts_prompt))
        return attempts.held_back(generate, request, counts_prompt=counts_prompt)

    async def _choice(
        self,
        request: GenerationRequest,
        card: ModelCard,
        rules: Rules,
        index: int,
        *,
        counts_prompt: bool,
    ) -> Events:
        """All of a choice's streams. One generator: each on the way of an event costs as much as
        writing it out.
        """
        with blamed(request.constraint):
            asked = self._asked(request, card, rules)
            prompt = asked.text or ""
            choice = Choice(
                request,
                card,
                index,
                counts_prompt=counts_prompt,
                parser=parsers.parser_of(request, card, prompt, rules.tool_family),
                specials=parsers.visible_specials(request, card),
            )
            while not choice.is_finished:
                if choice.has_thought_enough:
                    text, events = choice.end_thought(rules.closing)
                    guide = rules.guide(prompt, has_thought=True)
                    asked = asked.continued(text, choice.tokens, guide)
                    for event in events:
                        yield event
                async with aclosing(self._deltas(asked)) as deltas:
                    async for delta in deltas:
                        for event in choice.push(delta):
                            yield event
                        if choice.is_finished or choice.has_thought_enough:
                            break
                    else:
                        raise EngineFailed("The engine's stream ended without a finish reason.")

    def _deltas(self, asked: EngineRequest) -> Deltas:
        return limited(self._engine.generate(asked), self._limits)

    def _asked(self, request: GenerationRequest, card: ModelCard, rules: Rules) -> EngineRequest:
        """Raises InvalidRequest: the model cannot take it."""
        parsers.check(request, card)
        asked = _engine_request(request, card, self._limits.whole_s)
        if (guide := rules.guide(asked.text or "")) is not None:
            asked = replace(asked, constraint=guide)
        if missing := sorted(asked.asks_for - card.capabilities):
            raise InvalidRequest(
                f"The model {card.name!r} does not support this parameter.",
                code="unsupported_parameter",
                param=missing[0],
            )
        return asked


def _engine_request(request: GenerationRequest, card: ModelCard, timeout_s: float) -> EngineRequest:
    adds_special_tokens = request.adds_special_tokens
    if adds_special_tokens is None:  # a chat template writes its own
        adds_special_tokens = not isinstance(request.prompt, ChatPrompt)
    return EngineRequest(
        id=request.id,
        model=card,
        text=_text(request, card),
        token_ids=request.prompt.ids if isinstance(request.prompt, TokenPrompt) else None,
        add_special_tokens=adds_special_tokens,
        max_tokens=request.max_tokens,
        timeout_s=timeout_s,
        sampling=request.sampling.with_defaults(card.sampling),
        prompt_limit=request.prompt_limit,
        echoes_prompt=request.echoes_tokens,
        wants_token_ids=request.returns_token_ids
        or request.logs_token_ids
        or _hides_stop_tokens(request)
        or bool(parsers.visible_specials(request, card)),
        wants_log_prob_ids=request.logs_token_ids,
        priority=request.priority,
        cache_salt=request.cache_salt,
    )


def _text(request: GenerationRequest, card: ModelCard) -> str | None:
    """The prompt's; None where it is given as token ids."""
    match request.prompt:
        case ChatPrompt():
            return prompting.render(
                request.prompt,
                card.facts,
                request.callable_tools,
                takes_callers_values=card.takes_template_values,
                takes_templates=card.takes_templates,
                thinks=parsers.of_card(card).reasoning is not None,
            )
        case TextPrompt():
            return infilling.text_of(request.prompt, card)
        case TokenPrompt():
            return None
        case PromptBatch():
            raise TypeError("a batch is taken apart before it gets here")
        case _:
            assert_never(request.prompt)


def _hides_stop_tokens(request: GenerationRequest) -> bool:
    return bool(request.sampling.stop_token_ids) and not request.includes_stop
