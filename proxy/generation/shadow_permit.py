"""The place of a shadow's copy in the queue: the lowest class. Used by `shadow_deployments`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from proxy.domain.engine import EngineRequest, TokenSource
from proxy.domain.model import ModelCard
from proxy.domain.scheduling import Scheduler, Standing, Ticket
from proxy.generation.shadow import LOWEST_PRIORITY, Deltas

TENANT = "(shadow)"  # no real tenant pays for copies


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
