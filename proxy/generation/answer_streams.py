"""The engine's streams of one request, as events: rounds of tools, attempts to conform, choices.

Made by the service for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from proxy.access.limits.request_limiter import Reservation
from proxy.access.start_gate import StartGate
from proxy.domain.errors import InvalidRequest
from proxy.domain.events import Events
from proxy.domain.output import TokenDelta
from proxy.domain.record import RequestRecord
from proxy.domain.request import Delivery, GenerationRequest
from proxy.domain.server_tools import ToolRunner
from proxy.generation.attempts import Attempts
from proxy.generation.candidates import best, interleaved
from proxy.generation.choice.choice import Choice
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.generation.prepare import Part, Plan, Preparation
from proxy.generation.stream.engine_stream import EngineStream, StreamMeans
from proxy.language.structured.checks import Checker
from proxy.language.structured.constraint_errors import map_constraint_error
from proxy.server_tools.image_fetcher import ImageFetcher
from proxy.server_tools.tool_loop import run_tool_loop

AT_ONCE = 16  # tokens with log-probabilities; those of an echoed prompt come in larger pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the streams of all requests use. counts_cached: usage has `cached_tokens`."""

    preparation: Preparation
    tools: ToolRunner
    images: ImageFetcher
    checker: Checker
    gate: StartGate
    streams: StreamMeans
    counts_cached: bool


class AnswerStreams:
    """held: takes the log-probabilities that the request holds; None where it passes them on.

    reservation: of the caller's limits; None where the caller has none.
    """

    def __init__(
        self,
        plan: Plan,
        delivery: Delivery,
        record: RequestRecord,
        held: Callable[[int], None] | None,
        reservation: Reservation | None,
        means: Means,
    ) -> None:
        self._plan = plan
        self._delivery = delivery
        self._record = record
        self._held = held
        self._reservation = reservation
        self._means = means

    def events(self) -> Events:
        """The events of all choices."""
        plan, request = self._plan, self._plan.request
        if plan.generations == 1:
            return self._answer(plan.only_part(0))
        choices = [partial(self._nth_answer, index) for index in range(plan.generations)]
        events = interleaved(choices, self._means.gate)
        if request.candidates == request.choices:
            return events
        return best(events, candidates=request.candidates, choices=request.choices)

    def _nth_answer(self, index: int) -> Events:
        return self._answer(self._plan.part(index))

    def _answer(self, part: Part) -> Events:
        """One choice, through calls of the server's tools; each of its rounds must conform."""
        tools = self._plan.card.server_tools
        if not tools.tools:
            return self._conforming(part)
        return run_tool_loop(partial(self._round, part), part.request, tools, self._means.tools)

    def _round(self, part: Part, request: GenerationRequest) -> Events:
        if request is part.request:
            return self._conforming(part)
        is_bounded = request.max_tokens is not None or request.token_cap is not None
        return self._replanned(request, part.index, self._conforming, needs_output=not is_bounded)

    def _conforming(self, part: Part) -> Events:
        card, check = part.plan.card, part.plan.format.check
        if check is None:
            return self._choice(part)
        attempts = Attempts(
            check=check,
            checker=self._means.checker,
            caller=part.request.caller,
            at_most=card.max_retries + 1,
            record=self._record,
        )
        if self._delivery is Delivery.LIVE and card.streams_unchecked:
            return attempts.live(self._choice(part))
        return attempts.held_back(partial(self._attempt, part), part.request)

    def _attempt(self, part: Part, request: GenerationRequest) -> Events:
        if request is part.request:
            return self._choice(part)
        return self._replanned(request, part.index, self._choice, needs_output=True)

    async def _replanned(
        self,
        request: GenerationRequest,
        index: int,
        stream: Callable[[Part], Events],
        *,
        needs_output: bool,
    ) -> Events:
        """A later round or attempt, whose request differs from the caller's.

        needs_output: what it generates is not reserved with the rounds before it.
        """
        plan = await self._means.preparation.prepare_again(request, self._plan.card)
        if self._reservation is not None:
            await self._reservation.extend(request, plan.engine_requests, output=needs_output)
        async with aclosing(stream(plan.only_part(index))) as events:
            async for event in events:
                yield event

    async def _choice(self, part: Part) -> Events:
        """One choice's streams. One generator: each that an event passes costs as much as writing
        the event out.
        """
        plan, request, held = part.plan, part.engine_request, self._held
        cost = ChoiceCost(
            plan.card,
            self._record,
            counts_prompt=part.counts_prompt,
            counts_cached=self._means.counts_cached,
        )
        choice = Choice(
            part.request,
            plan.card,
            part.index,
            cost,
            parser=plan.new_parser(),
            specials=plan.special_tokens,
        )
        try:
            while True:
                if not choice.wants_more:
                    text, events = choice.end_thought(plan.format.closing)
                    request = request.continued(text, cost.tokens, plan.format.guides.answer)
                    for event in events:
                        yield event
                cost.begin_stream(counts_gaps=not request.echoes_prompt)
                stream = EngineStream(
                    part.request,
                    request,
                    self._means.streams,
                    self._record,
                    cost,
                    has_begun=cost.tokens > 0 or plan is not self._plan,
                )
                async with aclosing(stream.deltas()) as deltas:
                    async for delta in deltas:
                        cost.see(delta)
                        if delta.prompt_tokens is not None and self._reservation is not None:
                            self._reservation.see_first(
                                part.engine_request.id, delta, counts_prompt=part.counts_prompt
                            )
                        if delta.log_probs:
                            if held is not None:
                                held(_entries(delta))
                            if len(delta.log_probs) > AT_ONCE:
                                await asyncio.sleep(0)
                        events = choice.push(delta)
                        if not choice.wants_more and delta.finish is None:
                            await deltas.aclose()  # stops the engine before the client is served
                        for event in events:
                            yield event
                        if not choice.wants_more:
                            break
                if choice.is_finished:
                    return
        except InvalidRequest as error:
            map_constraint_error(error, part.request.constraint)
            raise


def _entries(delta: TokenDelta) -> int:
    """Log-probabilities: the tokens' own, and alternatives, which are as many for each."""
    return len(delta.log_probs) * (1 + len(delta.log_probs[-1].top))
