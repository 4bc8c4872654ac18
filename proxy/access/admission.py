"""How many generations each model takes, and all of them together. Held by the service."""

from __future__ import annotations

from pathlib import Path

from triton_openai.proxy.access.concurrency import Concurrency
from triton_openai.proxy.domain.model import ModelCard


class Admission:
    """A model's limit is `per_row` for each row that its engine decodes at once.

    Args:
        most: generations of all models together; None for no limit.
        per_row: rows may be few and prompts short, so it is generous: what it bounds is a flood.
        shared: a folder, for limits of all processes together.
    """

    def __init__(
        self, most: int | None = None, *, per_row: int = 16, shared: Path | None = None
    ) -> None:
        self._all = Concurrency(most, shared and shared / "permits")
        self._per_row = per_row
        self._shared = shared
        self._models: dict[tuple[str, int], Concurrency] = {}

    @property
    def running(self) -> int:
        """Generations in this process."""
        return self._all.running

    def permits(self, card: ModelCard, count: int) -> BothPermits:
        """For a `with`. Raises at its beginning, as Concurrency.permits does."""
        return BothPermits(self._of(card), self._all, count)

    def _of(self, card: ModelCard) -> Concurrency:
        """An adapter decodes in the rows of its model."""
        limit = card.facts.rows * self._per_row
        key = card.triton_model, limit
        if key not in self._models:
            file = self._shared and self._shared / f"permits-{card.triton_model}-{limit}"
            of = f"The model {card.parent or card.name!r}"
            self._models[key] = Concurrency(limit, file, of=of)
        return self._models[key]


class BothPermits:
    """Of a model, and of all models together. One object: each request enters it."""

    __slots__ = ("_all", "_count", "_model", "_of_all", "_of_model")

    def __init__(self, model: Concurrency, all_models: Concurrency, count: int) -> None:
        self._model = model
        self._all = all_models
        self._count = count
        self._of_model: list[int] = []
        self._of_all: list[int] = []

    def __enter__(self) -> None:
        self._of_model = self._model.take(self._count)
        try:
            self._of_all = self._all.take(self._count)
        except BaseException:
            self._model.give_back(self._count, self._of_model)
            raise

    def __exit__(self, *_: object) -> None:
        self._all.give_back(self._count, self._of_all)
        self._model.give_back(self._count, self._of_model)
