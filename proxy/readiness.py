"""Keeps the registry true: one look at Triton every half second. Started by app."""

from __future__ import annotations

import asyncio

import structlog

from proxy.domain.engine import Catalog, NotReady
from proxy.registry import Registry

logger = structlog.get_logger(__name__)

EVERY_S = 0.5


async def watch(catalog: Catalog, registry: Registry) -> None:
    """Looks until cancelled."""
    while True:
        await refresh(catalog, registry)
        await asyncio.sleep(EVERY_S)


async def refresh(catalog: Catalog, registry: Registry) -> None:
    """One look. Models are read anew whenever Triton comes back; each change is logged."""
    before = registry.why_not_ready
    try:
        if before is None:
            await catalog.check_ready({card.triton_model for card in registry.cards()})
            return
        loaded = await catalog.load()
    except NotReady as error:
        if str(error) != before:
            logger.warning("not ready", reason=str(error))
        registry.suspend(str(error))
    else:
        registry.serve(loaded)
        logger.info("ready", models=[model.name for model in loaded])
