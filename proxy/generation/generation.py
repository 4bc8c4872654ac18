"""The choices of one request: rounds of tools, attempts to conform, streams of the engine.

Made by the service for each request.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from triton_openai.proxy.access.guide_precheck import GuidePrecheck
from triton_openai.proxy.access.log_prob_budget import LogProbShare
from triton_openai.proxy.access.start_gate import StartGate
from triton_openai.proxy.domain import plain_spans
from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.engine import Engine, EngineRequest
from triton_openai.proxy.domain.errors import EngineFailed
from triton_openai.proxy.domain.events import Events
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.domain.server_tools import ToolRunner
from triton_openai.proxy.domain.watcher import RequestWatch
from triton_openai.proxy.generation.attempts import Attempts
from triton_openai.proxy.generation.candidates import best, interleaved
from triton_openai.proxy.generation.choice.choice import Choice
from triton_openai.proxy.generation.preparation import Preparation
from triton_openai.proxy.generation.resending import Deltas, Resending, ResentStream
from triton_openai.proxy.generation.rules import Rules
from triton_openai.proxy.generation.time_limits import TimeLimits, limited
from triton_openai.proxy.server_tools.tool_loop import run_tool_loop
from triton_openai.proxy.structured.checker import Checker
from triton_openai.proxy.structured.constraint_errors import MappedConstraintErrors
from triton_openai.proxy.syntax import parsers

AT_ONCE = 16  # tokens with log-probabilities; those of an echoed prompt come in larger pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the choices of all requests use. counts_cached: usage has `cached_tokens`."""

    engine: Engine
    tools: ToolRunner
    checker: Checker
    gate: StartGate
    limits: TimeLimits
    resending: Resending
    trials: GuidePrecheck
    counts_cached: bool


class Generation:
    """held: what the request holds of log-probabilities; None to pass them on as they come."""

    def __init__(
        self,
        card: ModelCard,
        delivery: Delivery,
        preparation: Preparation,
        held: LogProbShare | None,
        watch: RequestWatch,
        means: Means,
    ) -> None:
        self._card = card
        self._delivery = delivery
        self._preparation = preparation
        self._held = held
        self._watch = watch
        self._means = means

    def events(self, request: GenerationRequest, first: GenerationRequest) -> Events:
        """The events of all its choices. `first`: its first part, which the preparation knows."""
        if request.generations == 1:
            return self._answer(first, 0, counts_prompt=True)
        choices = [
            partial(self._part, request, first, index) for index in range(request.generations)
        ]
        events = interleaved(choices, self._means.gate)
        if request.candidates == request.choices:
            return events
        return best(events, candidates=request.candidates, choices=request.choices)

    def _part(self, request: GenerationRequest, first: GenerationRequest, index: int) -> Events:
        part = request.part(index) if index else first
        return self._answer(part, index, counts_prompt=index % request.candidates == 0)

    def _answer(self, request: GenerationRequest, index: int, *, counts_prompt: bool) -> Events:
        """One choice, through calls of the server's tools; each of its rounds must conform."""

        def round_of(asked: GenerationRequest) -> Events:
            if asked is not request:
                return self._later_round(asked, index)
            return self._conforming(asked, index, counts_prompt=counts_prompt)

        return run_tool_loop(round_of, request, self._card.server_tools, self._means.tools)

    async def _later_round(self, request: GenerationRequest, index: int) -> Events:
        """After calls of the server's tools: other tools may or must be called now."""
        await self._preparation.rules(request)
        events = self._conforming(request, index, counts_prompt=True)
        async with aclosing(events):
            async for event in events:
                yield event

    def _conforming(self, request: GenerationRequest, index: int, *, counts_prompt: bool) -> Events:
        def generate(request: GenerationRequest, counts_prompt: bool) -> Events:
            return self._choice(request, index, counts_prompt=counts_prompt)

        card, delivery = self._card, self._delivery
        check = self._preparation.known_rules(request).check
        if check is None:
            return generate(request, counts_prompt)
        attempts = Attempts(
            check=check,
            checker=self._means.checker,
            caller=request.caller,
            at_most=card.max_retries + 1,
            delivery=delivery,
        )
        if delivery.is_live and card.streams_unchecked:
            return attempts.live(generate(request, counts_prompt))
        return attempts.held_back(generate, request, counts_prompt=counts_prompt)

    async def _choice(
        self, request: GenerationRequest, index: int, *, counts_prompt: bool
    ) -> Events:
        """All of a choice's streams. One generator: each on the way of an event costs as much as
        writing it out.
        """
        held = self._held
        with MappedConstraintErrors(request.constraint):
            rules = await self._preparation.rules(request)
            asked = await self._preparation.engine_request(request)
            prompt = plain_spans.opening(asked.text or "", asked.plain_spans, rules.begun)
            choice = self._new_choice(request, index, prompt, rules, counts_prompt)
            self._delivery.counts.append(choice.tally)
            while not choice.is_finished:
                if choice.has_thought_enough:
                    text, events = choice.end_thought(rules.closing)
                    guide = rules.guide(prompt, has_thought=True)
                    asked = asked.continued(text, choice.tokens, guide)
                    for event in events:
                        yield event
                stream = self._watch.stream(asked)
                async with aclosing(self._deltas(asked, request.caller)) as deltas:
                    async for delta in deltas:
                        stream.see(delta)
                        if delta.log_probs:
                            if held is not None:
                                held.add(_entries(delta))
                            if len(delta.log_probs) > AT_ONCE:
                                await asyncio.sleep(0)
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
        prompt: str,
        rules: Rules,
        counts_prompt: bool,
    ) -> Choice:
        return Choice(
            request,
            self._card,
            index,
            counts_prompt=counts_prompt,
            counts_cached=self._means.counts_cached,
            parser=parsers.parser_of(request, self._card, prompt, rules.tool_family),
            specials=parsers.visible_special_tokens(request, self._card),
        )

    def _deltas(self, asked: EngineRequest, caller: str) -> ResentStream:
        means = self._means

        def send(asked: EngineRequest, since: float) -> Deltas:
            return limited(means.engine.generate(asked), means.limits, since=since)

        async def try_guide(asked: EngineRequest) -> None:
            await means.trials.check(asked, caller)

        return ResentStream(means.resending, send, try_guide, asked)


def _entries(delta: TokenDelta) -> int:
    """Log-probabilities: the tokens' own, and alternatives, which are as many for each."""
    return len(delta.log_probs) * (1 + len(delta.log_probs[-1].top))
