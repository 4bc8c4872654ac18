"""A double of domain.usage's ports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from proxy.domain.usage import Spent, UsageRow


class KeptUsage:
    """before: what every tenant, key and model had used; `asked` has the questions for it."""

    def __init__(self, before: Spent | None = None) -> None:
        self.rows: list[UsageRow] = []
        self.asked: list[tuple[str, str | None, str | None, datetime]] = []
        self._before = before or Spent()
        self._names: set[str] = set()

    def add(self, row: UsageRow) -> None:
        self.rows.append(row)

    async def add_once(self, name: str, rows: Sequence[UsageRow]) -> None:
        if name not in self._names:
            self._names.add(name)
            self.rows += rows

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        self.asked.append((tenant, key_id, model, since))
        return self._before
