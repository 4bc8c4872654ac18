"""How often one stream has lost its engine, and whether it gets anywhere. Used by failover."""

from __future__ import annotations

from dataclasses import dataclass

PROGRESS_TOKENS = 8  # with fewer new ones, a loss is another one in a row


@dataclass(slots=True, kw_only=True)
class LossCount:
    """Of one stream. in_a_row: without PROGRESS_TOKENS new tokens between them."""

    most: int
    most_in_a_row: int
    total: int = 0
    in_a_row: int = 0
    tokens: int = 0

    def add(self, tokens: int, *, is_fault: bool) -> bool:
        """One more, after so many tokens of the stream. Returns whether there was progress."""
        has_progress = tokens - self.tokens >= PROGRESS_TOKENS
        if has_progress:
            self.in_a_row = 0
        self.total += 1
        self.in_a_row += is_fault
        self.tokens = tokens
        return has_progress

    @property
    def are_too_many(self) -> bool:
        return self.total > self.most or self.in_a_row > self.most_in_a_row
