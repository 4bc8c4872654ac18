"""The line of a batch that the running task answers: it gets idle rows only, and is charged once.

Set by `api.batches`; read where a generation is queued, limited and charged.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from proxy.domain.usage import UsageRow


class Charge(Protocol):
    """What the caller's limits still hold for a line that has ended."""

    async def row(self) -> UsageRow: ...

    def settle(self, *, counts: bool) -> None:
        """Ends it. counts: the line's answer is the one that is kept."""
        ...


@dataclass(slots=True, eq=False)
class BatchLine:
    """rate: of the model's price. timeout_s: of its generation. charge: once that has ended."""

    rate: float
    timeout_s: float
    charge: Charge | None = None


current_line: ContextVar[BatchLine | None] = ContextVar("current_line", default=None)
