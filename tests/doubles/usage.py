"""Doubles of domain.usage's ports."""

from __future__ import annotations

from datetime import datetime

from triton_openai.proxy.domain.usage import Spent, UsageRow


class KeptUsage:
    def __init__(self) -> None:
        self.rows: list[UsageRow] = []

    def add(self, row: UsageRow) -> None:
        self.rows.append(row)


class SpentBefore:
    """The same for every tenant, key and model."""

    def __init__(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self._spent = Spent(tokens=tokens, cost=cost)
        self.asked: list[tuple[str, str | None, str | None, datetime]] = []

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        self.asked.append((tenant, key_id, model, since))
        return self._spent
