"""Copies of engine requests for shadow deployments, whose answers are compared and dropped.

The caller's stream never waits for a copy, and sees none of its errors. `ShadowDeployments` is used
where streams are opened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

import structlog
from typing_extensions import Self

from build_engines.deployment_entries import ShadowEntry as Shadow
from proxy import background
from proxy.domain.engine import Engine, EngineRequest, TokenSource
from proxy.domain.errors import ModelUnavailable, RateLimited
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.scheduling import FreeScheduler, Scheduler, Standing, Ticket
from proxy.domain.shadow import ShadowCounter, ShadowOutcome, ShadowResult
from proxy.models.registry import Registry

MAX_COPIES = 8  # running at once; one more is dropped
LOWEST_PRIORITY = -(2**31) + 1
TENANT = "(shadow)"  # no real tenant pays for copies
NO_SCHEDULER = FreeScheduler()
logger = structlog.get_logger()

Deltas = AsyncGenerator[TokenDelta, None]
_End = tuple[ShadowOutcome, tuple[str, ...]]  # and the fields that differ
OpenCopy = Callable[[EngineRequest, str], Deltas]


@dataclass(slots=True)
class _Answer:
    """The part of one stream that is compared. Keeps a hash of the text, to bound memory."""

    finish: FinishReason | None = None
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    text: blake2b = field(default_factory=blake2b)

    def add(self, delta: TokenDelta) -> None:
        self.text.update(b"".join(delta.token_bytes))
        self.completion_tokens += len(delta.token_bytes)
        self.finish = delta.finish or self.finish
        if delta.prompt_tokens is not None:
            self.prompt_tokens = delta.prompt_tokens

    def differences(self, other: _Answer) -> tuple[str, ...]:
        same = {
            "text": self.text.digest() == other.text.digest(),
            "finish_reason": self.finish is other.finish,
            "prompt_tokens": self.prompt_tokens == other.prompt_tokens,
            "completion_tokens": self.completion_tokens == other.completion_tokens,
        }
        return tuple(name for name, is_same in same.items() if not is_same)


class ShadowTraffic:
    """Enter it before the first request: leaving it ends the copies that run.

    Args:
        open_copy: the deltas of a request at the deployment of this name, as Engine.generate. It
            puts the deployment's own card into the request.
        draw: a random number from 0 to 1 exclusive.
    """

    def __init__(
        self,
        open_copy: OpenCopy,
        counter: ShadowCounter,
        *,
        most: int = MAX_COPIES,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._open_copy = open_copy
        self._counter = counter
        self._most = most
        self._draw = draw
        self._copies: set[asyncio.Task[_End]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await background.end(self._copies)

    def mirrored(
        self, request: EngineRequest, deltas: Deltas, shadow: Shadow | None, *, chosen: str
    ) -> Deltas:
        """Returns the deltas unchanged. Sends a copy of some requests to the shadow deployment.

        Args:
            chosen: the deployment that the deltas are from: the shadow gets no copies of its own.
        """
        if shadow is None or chosen == shadow.deployment:
            return deltas
        if self._draw() * 100 >= shadow.percent:
            return deltas
        return self._watched(request, deltas, shadow)

    async def _watched(self, request: EngineRequest, deltas: Deltas, shadow: Shadow) -> Deltas:
        answer, ended = _Answer(), asyncio.Event()
        copy = self._begin(request, shadow, answer, ended)
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    answer.add(delta)
                    yield delta
        finally:
            if answer.finish is None and copy is not None:
                copy.cancel()
            ended.set()

    def _begin(
        self, request: EngineRequest, shadow: Shadow, caller: _Answer, ended: asyncio.Event
    ) -> asyncio.Task[_End] | None:
        if len(self._copies) >= self._most:
            self._count(request, shadow, ShadowOutcome.DROPPED)
            return None
        # without the caller's context, whose log line must not get fields of the copy
        copy = Context().run(asyncio.create_task, self._copy(request, shadow, caller, ended))
        self._copies.add(copy)
        copy.add_done_callback(partial(self._ended, request, shadow))
        return copy

    async def _copy(
        self, request: EngineRequest, shadow: Shadow, caller: _Answer, ended: asyncio.Event
    ) -> _End:
        """How it ended, and where the answers differ. Waits for the caller's to end, too."""
        own = _Answer()
        try:
            async with aclosing(self._open_copy(copy_of(request), shadow.deployment)) as deltas:
                async for delta in deltas:
                    own.add(delta)
            await ended.wait()
        except RateLimited:  # no row is free, and copies do not wait
            return ShadowOutcome.DROPPED, ()
        except Exception as error:  # whatever it is, it is not the caller's
            kind = type(error).__name__  # its message may have the caller's texts
            logger.debug("shadow request failed", deployment=shadow.deployment, error=kind)
            return ShadowOutcome.FAILED, ()
        if caller.finish is None:
            return ShadowOutcome.ABANDONED, ()
        return ShadowOutcome.COMPARED, caller.differences(own)

    def _ended(self, request: EngineRequest, shadow: Shadow, copy: asyncio.Task[_End]) -> None:
        """A task that is cancelled before its first step runs nothing, so it is counted here."""
        self._copies.discard(copy)
        outcome = (ShadowOutcome.ABANDONED, ()) if copy.cancelled() else copy.result()
        self._count(request, shadow, *outcome)

    def _count(
        self,
        request: EngineRequest,
        shadow: Shadow,
        outcome: ShadowOutcome,
        differences: tuple[str, ...] = (),
    ) -> None:
        self._counter.count(
            ShadowResult(
                model=request.model.name,
                deployment=shadow.deployment,
                outcome=outcome,
                is_comparable=is_comparable(request),
                differences=differences,
            )
        )


def copy_of(request: EngineRequest) -> EngineRequest:
    """The request with an id of its own, without log-probabilities, and with the lowest priority.

    Its sender puts the deployment's card into it, and removes the priority if the card has none.
    """
    return replace(
        request,
        id=f"{request.id}-shadow",
        priority=LOWEST_PRIORITY,
        sampling=replace(request.sampling, top_log_probs=None),
        wants_token_ids=False,
        keeps_ids=False,
        wants_log_prob_ids=False,
        interrupt=None,
    )


def is_comparable(request: EngineRequest) -> bool:
    """Whether equal engines give equal answers to it."""
    sampling = request.sampling
    return sampling.temperature == 0 or sampling.top_k == 1 or sampling.seed is not None


class ShadowDeployments:
    """Enter it before the first request: leaving it ends the copies that run.

    scheduler: copies have its lowest class. They do not wait, and give their rows back to any other
    class. Whoever made it enters it.
    """

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        counter: ShadowCounter,
        scheduler: Scheduler = NO_SCHEDULER,
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._scheduler = scheduler
        self._traffic = ShadowTraffic(self._open, counter)

    async def __aenter__(self) -> Self:
        await self._traffic.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._traffic.__aexit__(*exc_info)

    def mirrored(self, request: EngineRequest, deltas: Deltas) -> Deltas:
        """Returns the deltas unchanged. Copies some requests to the shadow of their model."""
        card = request.model
        model = self._registry.models.get(card.name)
        shadow = None if model is None else model.plan.shadow
        if shadow is None:
            return deltas
        return self._traffic.mirrored(request, deltas, shadow, chosen=card.deployment)

    def _open(self, request: EngineRequest, deployment: str) -> Deltas:
        """Raises ModelUnavailable: the shadow has no endpoint now."""
        for card in self._registry.model(request.model.name).cards:
            if card.deployment == deployment and self._registry.is_available(card):
                priority = request.priority if "priority" in card.capabilities else None
                request = replace(request, model=card, priority=priority)
                return permitted(request, self._engine, self._scheduler)
        raise ModelUnavailable(f"The deployment {deployment!r} has no endpoint that is ready.")


async def permitted(request: EngineRequest, engine: TokenSource, scheduler: Scheduler) -> Deltas:
    """The deltas of a copy, which takes a row only if one is free.

    When another class needs its row, the task that reads the deltas is cancelled.

    Raises:
        RateLimited: no row is free. Further errors are the engine's.
    """
    tokens, reader = 0, asyncio.current_task()
    assert reader is not None

    def stop() -> None:
        reader.cancel()

    permit = await scheduler.acquire(_ticket(request.model), moved=_ignored, preempted=stop)
    try:
        permit.meter(lambda: tokens)
        async with aclosing(engine.generate(request)) as deltas:
            async for delta in deltas:
                tokens += len(delta.token_bytes)
                yield delta
    finally:
        permit.release()


def _ticket(card: ModelCard) -> Ticket:
    return Ticket(
        queue=f"{card.pool}/{card.triton_model}",
        tenant=TENANT,
        priority=LOWEST_PRIORITY,
        patience_s=0,
        may_yield=True,
    )


def _ignored(standing: Standing) -> None:
    """Copies do not wait."""
