"""The engine's deltas for one choice, which survive the loss of their engine. For answer_streams.

A stream is lost when its endpoint dies, is silent or drains, or when its row is needed for another.
Before its first delta it is sent again; after that, another engine stream continues the answer, and
the reader sees a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    EngineStalled,
    ModelUnavailable,
    Preempted,
    RateLimited,
)
from proxy.domain.output import TokenDelta
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest
from proxy.generation.choice.choice_clock import ChoiceClock
from proxy.generation.engine_stages import EngineStages
from proxy.generation.failover import Failover, Given, StreamMeans, cause_of
from proxy.generation.row_permit import RowPermit, ticket_of
from proxy.generation.time_limits import TimeWatch

HIGHEST_PRIORITY = 2**31 - 1
LOSSES = (ModelUnavailable, EngineStalled, RateLimited)

Deltas = AsyncGenerator[TokenDelta, None]
# (what an engine is sent, whether it is the whole answer and no rest of one) -> its deltas
Send = Callable[[EngineRequest, bool], Deltas]
TryGuide = Callable[[EngineRequest], Awaitable[None]]


class EngineStream:
    """The deltas of one engine request.

    Args:
        asked: the caller's request, which competes for rows.
        try_guide: called before a part is sent again: a Triton that came back has not compiled its
            guide yet.
        tokens: how many the reader has counted; the stream's own are those since now.
        clock: the choice's. The reader ends it with the last delta.
        has_begun: the answer has earlier streams, so that this one is not refused a row.
    """

    def __init__(
        self,
        asked: GenerationRequest,
        request: EngineRequest,
        means: StreamMeans,
        report: RequestRecord,
        *,
        send: Send,
        try_guide: TryGuide,
        tokens: Callable[[], int],
        clock: ChoiceClock,
        has_begun: bool = False,
    ) -> None:
        self._given = Given()
        self._failover = failover = Failover(request, means, report, self._given, tokens)
        self._row = RowPermit(
            means.scheduler,
            ticket_of(asked, request, may_yield=failover.is_exact, has_begun=has_begun),
            report,
            tokens=tokens,
            preempted=self._preempt,
        )
        self._limits = means.limits
        self._clock = clock
        self._send = send
        self._try_guide = try_guide
        self._source: Deltas = _nothing()
        self._stages = EngineStages()

    async def deltas(self) -> Deltas:
        """To one task. Each delta's ids are kept here, which is all that a continuation costs.

        Raises:
            ProxyError: as the engine and the scheduler do, or why the stream is not continued.
        """
        watch, keep = TimeWatch(self._limits), self._given.ids.extend
        delta: TokenDelta | None = None
        try:
            await watch.within(self._row.acquire())
            while True:
                try:
                    delta = await self._first(watch)
                    source = self._source
                    while True:
                        keep(delta.token_ids)
                        yield delta
                        watch.wait()
                        try:
                            delta = await anext(source)
                        except asyncio.CancelledError:
                            watch.raise_if_over()
                            raise
                        watch.rest()
                except StopAsyncIteration:
                    return
                except LOSSES as error:
                    lost = error
                self._stages.lose(cause_of(lost))
                self._clock.end(None, watch.waiting_since)
                watch.leave()
                await self._source.aclose()
                await self._failover.next_part(lost, watch, self._row)
        finally:
            watch.end()
            self._stages.end(delta)
            try:
                await self._source.aclose()
            finally:
                self._row.release()

    async def _first(self, watch: TimeWatch) -> TokenDelta:
        """Opens the next part: its first delta that the reader has not seen yet."""
        failover, given, part = self._failover, self._given, self._failover.part
        if failover.finish is not None:
            failover.see_first()
            self._source = _nothing()
            return TokenDelta((), finish=failover.finish)
        if failover.parts:
            await self._try_guide(part)
        if self._row.must_yield:
            raise _preempted()
        sent = self._stages.begin(_urgent(part) if self._row.took_over else part)
        self._clock.begin()
        self._source = self._send(sent, not given.has_begun)
        watch.begin(part.interrupt)
        delta = await _next(self._source, watch)
        self._stages.see_first(delta)
        self._clock.see_first(delta.queue_s)
        if part.interrupt is not None:
            watch.see_first(failover.can_move)
        prompt_tokens, cached_tokens = delta.prompt_tokens or 0, delta.cached_tokens or 0
        if not given.has_begun:
            self._begin(delta, part)
        elif delta.prompt_tokens is not None:  # the reader has counted the prompt
            delta = replace(delta, prompt_tokens=None, cached_tokens=None)
        # An engine with `resume_from` counts the cached tokens of the prompt alone. If all of them
        # are cached, what was generated is, too.
        is_cached = given.has_begun and 0 < prompt_tokens <= cached_tokens
        context_tokens = given.prompt_tokens + len(given.answer_ids)
        self._row.see_first(0 if is_cached else max(context_tokens - cached_tokens, 0))
        failover.see_first()
        repeats = failover.repeats
        while repeats:
            count = len(delta.token_bytes)
            if count > repeats or delta.finish is not None:
                return _without(delta, repeats)
            repeats -= count
            delta = await _next(self._source, watch)
        return delta

    def _begin(self, delta: TokenDelta, part: EngineRequest) -> None:
        given = self._given
        given.has_begun = True
        given.prompt_tokens = delta.prompt_tokens or 0
        given.echoed = given.prompt_tokens if part.echoes_prompt else 0

    def _preempt(self) -> None:
        self._failover.interrupt(_preempted())


async def _next(source: Deltas, watch: TimeWatch) -> TokenDelta:
    watch.wait()
    try:
        delta = await anext(source)
    except asyncio.CancelledError:
        watch.raise_if_over()
        raise
    watch.rest()
    return delta


async def _nothing() -> Deltas:
    return
    yield  # a generator


def _without(delta: TokenDelta, count: int) -> TokenDelta:
    """The delta without its first tokens."""
    return replace(
        delta,
        token_bytes=delta.token_bytes[count:],
        token_ids=delta.token_ids[count:],
        log_probs=delta.log_probs[count:],
    )


def _urgent(part: EngineRequest) -> EngineRequest:
    """An engine that takes priorities runs it before all others of its class."""
    if "priority" not in part.model.capabilities:
        return part
    return replace(part, priority=min((part.priority or 0) + 1, HIGHEST_PRIORITY))


def _preempted() -> Preempted:
    return Preempted("Another request needed this one's place. Send it again.")
