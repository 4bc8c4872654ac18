"""Limits on simultaneous generations: one for each model, one for all. Used by the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """

    def __init__(
        self, most: int | None = None, *, per_row: int = 16, shared: Path | None = None
    ) -> None:
        self._all = ConcurrencyLimit(most, shared and shared / "permits")
        self._per_row = per_row
        self._shared = shared
        self._models: dict[tuple[str, int], ConcurrencyLimit] = {}

    @property
    def running(self) -> int:
        """Generations in this process."""
        return self._all.running

    @contextmanager
    def permits(self, card: ModelCard, count: int) -> Iterator[None]:
        """Holds `count` permits of the model and of the total. Raises as ConcurrencyLimit does."""
        with self._model_limit(card).permits(count), self._all.permits(count):
            yield

    def _model_limit(self, card: ModelCard) -> ConcurrencyLimit:
        """A LoRA adapter shares the limit of its model, because it shares the engine's rows."""
        limit = card.facts.rows * self._per_row
        key = card.triton_model, limit
        if key not in self._models:
            file = self._shared and self._shared / f"permits-{card.triton_model}-{limit}"
            of = f"The model {card.parent or card.name!r}"
            self._models[key] = ConcurrencyLimit(limit, file, of=of)
        return self._models[key]
