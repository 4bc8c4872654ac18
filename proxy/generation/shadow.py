"""Copies of engine requests for shadow deployments, whose answers are compared and dropped.

The caller's stream never waits for a copy, and sees none of its errors. Used by engine_stream.
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

from proxy import background
from proxy.domain.engine import LOWEST_PRIORITY, Engine, EngineRequest
from proxy.domain.errors import ModelUnavailable, RateLimited
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.scheduling import FreeScheduler, Scheduler, Standing, Ticket
from proxy.models.registry import Registry
from proxy.telemetry.metrics import ShadowOutcome, ShadowResult

MAX_COPIES = 8  # running at once; one more is dropped
TENANT = "(shadow)"  # no real tenant pays for copies
NO_SCHEDULER = FreeScheduler()
logger = structlog.get_logger()

Deltas = AsyncGenerator[TokenDelta, None]
_End = tuple[ShadowOutcome, tuple[str, ...]]  # and the fields that differ


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
        count: called with what became of each copy.
        scheduler: copies have its lowest class. They do not wait, and give their rows back to any
            other class. Whoever made it enters it.
        draw: a random number from 0 to 1 exclusive.
    """

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        count: Callable[[ShadowResult], None],
        scheduler: Scheduler = NO_SCHEDULER,
        *,
        most: int = MAX_COPIES,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._count = count
        self._scheduler = scheduler
        self._most = most
        self._draw = draw
        self._copies: set[asyncio.Task[_End]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await background.end(self._copies)

    def mirrored(self, request: EngineRequest, deltas: Deltas) -> Deltas:
        """Returns the deltas unchanged. Sends a copy of some requests to the shadow of their model,
        which gets no copies of its own requests.
        """
        model = self._registry.models.get(request.model.name)
        shadow = None if model is None else model.plan.shadow
        if shadow is None or request.model.deployment == shadow.deployment:
            return deltas
        if self._draw() * 100 >= shadow.percent:
            return deltas
        return self._watched(request, deltas, shadow.deployment)

    async def _watched(self, request: EngineRequest, deltas: Deltas, deployment: str) -> Deltas:
        answer, ended, copy = _Answer(), asyncio.Event(), None
        if len(self._copies) < self._most:
            # without the caller's context, whose log line must not get fields of the copy
            work = self._copy(request, deployment, answer, ended)
            copy = Context().run(asyncio.create_task, work)
            self._copies.add(copy)
            copy.add_done_callback(partial(self._ended, request, deployment))
        else:
            self._count(_result(request, deployment, ShadowOutcome.DROPPED))
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    answer.add(delta)
                    yield delta
        finally:
            if answer.finish is None and copy is not None:
                copy.cancel()
            ended.set()

    async def _copy(
        self, request: EngineRequest, deployment: str, caller: _Answer, ended: asyncio.Event
    ) -> _End:
        """How it ended, and where the answers differ. Waits for the caller's to end, too. When
        another class needs its row, its task is cancelled.
        """
        own, task = _Answer(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            task.cancel()

        try:
            copy = copy_of(request, self._card(request.model, deployment))
            permit = await self._scheduler.acquire(
                _ticket(copy.model), moved=_ignored, preempted=stop
            )
            try:
                permit.meter(lambda: own.completion_tokens)
                async with aclosing(self._engine.generate(copy)) as deltas:
                    async for delta in deltas:
                        own.add(delta)
            finally:
                permit.release()
            await ended.wait()
        except RateLimited:  # no row is free, and copies do not wait
            return ShadowOutcome.DROPPED, ()
        except Exception as error:  # whatever it is, it is not the caller's
            kind = type(error).__name__  # its message may have the caller's texts
            logger.debug("shadow request failed", deployment=deployment, error=kind)
            return ShadowOutcome.FAILED, ()
        if caller.finish is None:
            return ShadowOutcome.ABANDONED, ()
        return ShadowOutcome.COMPARED, caller.differences(own)

    def _card(self, model: ModelCard, deployment: str) -> ModelCard:
        """Raises ModelUnavailable: the shadow has no endpoint now."""
        for card in self._registry.model(model.name).cards:
            if card.deployment == deployment and self._registry.is_available(card):
                return card
        raise ModelUnavailable(f"The deployment {deployment!r} has no endpoint that is ready.")

    def _ended(self, request: EngineRequest, deployment: str, copy: asyncio.Task[_End]) -> None:
        """A task that is cancelled before its first step runs nothing, so it is counted here."""
        self._copies.discard(copy)
        outcome, differences = ShadowOutcome.ABANDONED, tuple[str, ...]()
        if not copy.cancelled():
            outcome, differences = copy.result()
        self._count(_result(request, deployment, outcome, differences))


def copy_of(request: EngineRequest, card: ModelCard) -> EngineRequest:
    """The request for the shadow's card, with an id of its own, without log-probabilities, and with
    the lowest priority.
    """
    return replace(
        request,
        id=f"{request.id}-shadow",
        model=card,
        priority=LOWEST_PRIORITY if "priority" in card.capabilities else None,
        sampling=replace(request.sampling, top_log_probs=None),
        wants_token_ids=False,
        keeps_ids=False,
        wants_log_prob_ids=False,
        interrupt=None,
        stage=None,
    )


def _result(
    request: EngineRequest,
    deployment: str,
    outcome: ShadowOutcome,
    differences: tuple[str, ...] = (),
) -> ShadowResult:
    """Equal engines give equal answers to a request that is comparable."""
    sampling = request.sampling
    return ShadowResult(
        model=request.model.name,
        deployment=deployment,
        outcome=outcome,
        is_comparable=sampling.temperature == 0 or sampling.top_k == 1 or sampling.seed is not None,
        differences=differences,
    )


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
