"""Limits on simultaneous generations: one for each model, one for all. Used by the service."""

from __future__ import annotations

from collections.abc import Callable

from proxy.access.concurrency import ConcurrencyLimit
from proxy.domain.model import ModelCard


class ModelConcurrency:
    """Hands out permits for generations.

    Args:
        most: generations of all models together; None for no limit.
        per_row: a model's limit, for each row that its engine decodes at once. It is generous,
            since it is there to stop floods: a model may have few rows and short requests.
        rows: of all engines of a card's build.
        is_queued: whether the streams of a card wait in the fair queue, which has bounds of its
            own. Then a model's limit is only the most that one request may ask for.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        per_row: int = 16,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
        is_queued: Callable[[ModelCard], bool] = lambda card: False,
    ) -> None:
        self._all = ConcurrencyLimit(most)
        self._per_row = per_row
        self._rows = rows
        self._is_queued = is_queued
        self._models: dict[tuple[str, str, int], ConcurrencyLimit] = {}

    @property
    def running(self) -> int:
        """Generations now."""
        return self._all.running

    def permits(self, card: ModelCard, count: int) -> BothPermits:
        """Holds `count` permits of the model and of the total for the body of the `with`.

        Raises as ConcurrencyLimit.permits does.
        """
        limit = self._model_limit(card)
        if self._is_queued(card):
            limit.check_possible(count)
            limit = UNLIMITED
        return BothPermits(limit, self._all, count)

    def _model_limit(self, card: ModelCard) -> ConcurrencyLimit:
        """A LoRA adapter shares the limit of its model, because it shares the engine's rows."""
        limit = self._rows(card) * self._per_row
        key = card.pool, card.triton_model, limit
        if key not in self._models:
            of = f"The model {card.parent or card.name!r}"
            self._models[key] = ConcurrencyLimit(limit, of=of)
        return self._models[key]


class BothPermits:
    """Permits of a model and of all models together. One object, because every request makes it."""

    __slots__ = ("_all", "_count", "_model")

    def __init__(self, model: ConcurrencyLimit, all_models: ConcurrencyLimit, count: int) -> None:
        self._model = model
        self._all = all_models
        self._count = count

    def __enter__(self) -> None:
        self._model.take(self._count)
        try:
            self._all.take(self._count)
        except BaseException:
            self._model.give_back(self._count)
            raise

    def __exit__(self, *_: object) -> None:
        self._all.give_back(self._count)
        self._model.give_back(self._count)


UNLIMITED = ConcurrencyLimit(None)
