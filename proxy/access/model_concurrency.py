"""Limits on simultaneous generations: one for each model, one for all. Used by the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from triton_openai.proxy.access.concurrency import ConcurrencyLimit
from triton_openai.proxy.domain.model import ModelCard


class ModelConcurrency:
    """Hands out permits for generations.

    Args:
        most: generations of all models together; None for no limit.
        per_row: a model's limit, for each row that its engine decodes at once. It is generous,
            since it is there to stop floods: a model may have few rows and short requests.
        shared: a folder for files through which several processes share the limits.
        rows: of all engines of a card's build.
        is_queued: whether the streams of a card wait in the fair queue, which has bounds of its
            own. Then a model's limit is only the most that one request may ask for.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        per_row: int = 16,
        shared: Path | None = None,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
        is_queued: Callable[[ModelCard], bool] = lambda card: False,
    ) -> None:
        self._all = ConcurrencyLimit(most, shared and shared / "permits")
        self._per_row = per_row
        self._shared = shared
        self._rows = rows
        self._is_queued = is_queued
        self._models: dict[tuple[str, str, int], ConcurrencyLimit] = {}

    @property
    def running(self) -> int:
        """Generations in this process."""
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
            file = self._shared and self._shared / "-".join(("permits", *map(str, key)))
            of = f"The model {card.parent or card.name!r}"
            self._models[key] = ConcurrencyLimit(limit, file, of=of)
        return self._models[key]


class BothPermits:
    """Permits of a model and of all models together. One object, because every request makes it."""

    __slots__ = ("_all", "_all_slots", "_count", "_model", "_model_slots")

    def __init__(self, model: ConcurrencyLimit, all_models: ConcurrencyLimit, count: int) -> None:
        self._model = model
        self._all = all_models
        self._count = count
        self._model_slots: list[int] = []
        self._all_slots: list[int] = []

    def __enter__(self) -> None:
        self._model_slots = self._model.take(self._count)
        try:
            self._all_slots = self._all.take(self._count)
        except BaseException:
            self._model.give_back(self._count, self._model_slots)
            raise

    def __exit__(self, *_: object) -> None:
        self._all.give_back(self._count, self._all_slots)
        self._model.give_back(self._count, self._model_slots)


UNLIMITED = ConcurrencyLimit(None)
