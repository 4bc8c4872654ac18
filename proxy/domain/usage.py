"""What a request used, and the port that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one request used. at: UTC, when it ended. cost: in the currency of the prices.

    prompt_tokens includes cached_tokens, output_tokens includes reasoning_tokens. queue_s: the
    time that the engine let the request wait.
    """

    tenant: str
    key_id: str
    model: str
    at: datetime
    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    queue_s: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """tokens: input and output. cost: in the currency of the prices."""

    tokens: int = 0
    cost: float = 0.0


class UsageStore(Protocol):
    """Keeps the rows, and knows what they add up to."""

    def add(self, row: UsageRow) -> None:
        """Takes a row without waiting: it is called while a request ends."""

    async def add_once(self, name: str, rows: Sequence[UsageRow]) -> None:
        """Adds all of them, unless it has done so under this name within the last week.

        Raises StoreUnavailable: call it again.
        """

    async def spent(
        self, *, tenant: str, key_id: str | None, model: str | None, since: datetime
    ) -> Spent:
        """What was used before this process, or the shared state of the limits, began to count: of
        a tenant, or of one of its keys or models only. since: UTC, the first of a month.
        """
        ...
