"""What all pools serve together, by their endpoints' last checks: a domain.engine.Catalog."""

from __future__ import annotations

from collections.abc import Collection

from proxy.domain.engine import NotReady
from proxy.domain.model import LoadedModel, ModelCard
from proxy.pools.pool_set import PoolSet

NOTHING_SERVED = "no endpoint serves a model of this project"


class PooledCatalog:
    """Asks nobody itself, so both methods are cheap."""

    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools

    def has_news(self) -> bool:
        return self._pools.take_news()

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves exactly this build of the model now."""
        return self._pools.variant(card) is not None

    def rows(self, card: ModelCard) -> int:
        return self._pools.rows(card)

    async def check_ready(self, models: Collection[str]) -> None:
        """Returns when an endpoint is ready, for whatever model: see `is_available`."""
        if (reason := self._pools.why_not_ready()) is not None:
            raise reason

    async def load(self) -> tuple[LoadedModel, ...]:
        await self.check_ready(())
        if not (models := self._pools.models()):
            raise NotReady(NOTHING_SERVED)
        return models
