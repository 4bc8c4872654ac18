"""Keeps the registry true: one look at Triton every half second. Started by app.

What its models are is read anew when Triton comes back, and now and then while it is there: behind
one address another Triton may answer the next look, with another build.
"""

from __future__ import annotations

import asyncio
from itertools import count

import structlog

from triton_openai.proxy.domain.engine import Catalog, NotReady
from triton_openai.proxy.models.comeback import Comeback
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.prompting import control_tokens
from triton_openai.proxy.telemetry.metrics import Metrics

logger = structlog.get_logger(__name__)

EVERY_S = 0.5
LOOKS_TO_REREAD = 60


async def watch(catalog: Catalog, registry: Registry, metrics: Metrics, comeback: Comeback) -> None:
    """Looks until cancelled."""
    for number in count(1):
        await look(catalog, registry, comeback, rereads=number % LOOKS_TO_REREAD == 0)
        metrics.ready.set(registry.why_not_ready is None)
        await asyncio.sleep(EVERY_S)


async def look(
    catalog: Catalog, registry: Registry, comeback: Comeback, *, rereads: bool = False
) -> None:
    """Refreshes the registry. Where Triton is ready, lets those go who waited before."""
    waiting = comeback.waiting()
    await refresh(catalog, registry, rereads=rereads)
    if registry.why_not_ready is None:
        await comeback.release(waiting)


async def refresh(catalog: Catalog, registry: Registry, *, rereads: bool = False) -> None:
    """One look; each change is logged. `rereads`: what the models are, even if all was well."""
    before = registry.why_not_ready
    try:
        if before is None and not rereads:
            await catalog.check_ready({card.triton_model for card in registry.cards()})
            return
        loaded = await catalog.load()
        is_news = registry.serve(loaded)
    except NotReady as error:
        if before is None or str(error) != str(before):
            logger.warning("not ready", reason=str(error))
        registry.suspend(error)
    else:
        if is_news:
            for card in registry.cards():
                await asyncio.to_thread(control_tokens.prepare, card)
            logger.info("ready", models=[model.name for model in loaded])
