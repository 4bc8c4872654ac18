"""What operators decided, for a proxy without a store: it ends with the proxy.

MemoryDecisions implements domain.endpoints.Decisions, LoggedAudit AuditTrail of the same module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from proxy.domain.endpoints import MOST_DRAINED, WeightHistory, Weights, too_many_drained

logger = structlog.get_logger(__name__)


class MemoryDecisions:
    def __init__(self) -> None:
        self.drained: frozenset[str] = frozenset()
        self._histories: dict[str, WeightHistory] = {}

    def weights(self, model: str) -> Weights | None:
        return self._history(model).current

    async def drain(self, address: str, *, actor: str) -> None:
        drained = self.drained | {address}
        if len(drained) > MOST_DRAINED:
            raise too_many_drained()
        self.drained = drained
        logger.info("endpoint drained", address=address, actor=actor)

    async def undrain(self, address: str, *, actor: str) -> None:
        self.drained -= {address}
        logger.info("endpoint undrained", address=address, actor=actor)

    async def set_weights(self, model: str, weights: Weights, *, actor: str) -> None:
        self._change(model, self._history(model).changed(weights), actor)

    async def roll_back(self, model: str, *, actor: str) -> Weights | None:
        self._change(model, self._history(model).rolled_back(model), actor)
        return self.weights(model)

    def _history(self, model: str) -> WeightHistory:
        return self._histories.get(model, WeightHistory())

    def _change(self, model: str, history: WeightHistory, actor: str) -> None:
        self._histories[model] = history
        logger.info("weights changed", model=model, weights=history.current, actor=actor)


class LoggedAudit:
    async def note(
        self, action: str, object: str, *, actor: str, details: Mapping[str, Any]
    ) -> None:
        logger.info("operator's change", action=action, object=object, actor=actor, **details)
