"""The weights of one model's deployments that operators set, with those before each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.domain.errors import Conflict, ErrorCode, echoed

KEPT_CHANGES = 20
Weights = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightHistory:
    """current: by deployment; None: those of models.yaml. earlier: the oldest first, at most 20."""

    current: Weights | None = None
    earlier: tuple[Weights | None, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.current is None and not self.earlier

    def changed(self, weights: Mapping[str, float]) -> WeightHistory:
        """With other weights. Equal ones are no change, so a rollback never lands on them."""
        if self.current == weights:
            return self
        earlier = (*self.earlier, self.current)[-KEPT_CHANGES:]
        return WeightHistory(current=dict(weights), earlier=earlier)

    def rolled_back(self, model: str) -> WeightHistory:
        """Without the last change. Raises Conflict: none is kept."""
        if not self.earlier:
            raise Conflict(
                f"There is no earlier change of the weights of the model {echoed(model)} to roll "
                f"back to. The last {KEPT_CHANGES} changes are kept.",
                code=ErrorCode.NO_EARLIER_WEIGHTS,
                param="model",
            )
        return WeightHistory(current=self.earlier[-1], earlier=self.earlier[:-1])
