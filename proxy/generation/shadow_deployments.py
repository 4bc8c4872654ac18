"""Which streams have a shadow, and where their copies go. Used where streams are opened."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import Self

from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import ModelUnavailable
from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.domain.shadow import ShadowCounter
from proxy.generation.shadow import Deltas, ShadowTraffic
from proxy.generation.shadow_permit import permitted
from proxy.models.registry import Registry

NO_SCHEDULER = FreeScheduler()


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
        shadow = self._registry.plan(card).shadow
        if shadow is None:
            return deltas
        return self._traffic.mirrored(request, deltas, shadow, chosen=card.deployment)

    def _open(self, request: EngineRequest, deployment: str) -> Deltas:
        """Raises ModelUnavailable: the shadow has no endpoint now."""
        for card in self._registry.variants(request.model.name):
            if card.deployment == deployment and self._registry.is_available(card):
                priority = request.priority if "priority" in card.capabilities else None
                request = replace(request, model=card, priority=priority)
                return permitted(request, self._engine, self._scheduler)
        raise ModelUnavailable(f"The deployment {deployment!r} has no endpoint that is ready.")
