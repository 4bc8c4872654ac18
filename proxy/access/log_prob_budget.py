"""A bound on the log-probabilities that all non-streamed answers hold in memory together."""

from __future__ import annotations

from typing_extensions import Self

from proxy.domain.errors import ErrorCode, RateLimited

MOST_HELD = 1_000_000


class LogProbBudget:
    """`most`: entries of all requests of this process; each alternative is an entry, too."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self.entries = 0

    def share(self) -> LogProbShare:
        """A share for one request, which is given back when its `with` ends."""
        return LogProbShare(self)


class LogProbShare:
    """One request's part of the budget; it is given back when the `with` ends."""

    __slots__ = ("_budget", "entries")

    def __init__(self, budget: LogProbBudget) -> None:
        self._budget = budget
        self.entries = 0

    def add(self, entries: int) -> None:
        """Takes more of the budget. Raises RateLimited: all requests together hold too many."""
        budget = self._budget
        if budget.entries + entries > budget.most:
            raise RateLimited(
                f"This server holds at most {budget.most} log-probabilities for answers that are "
                "not streamed, and they are all in use. Use 'stream', or ask for fewer.",
                code=ErrorCode.QUEUE_FULL,
            )
        budget.entries += entries
        self.entries += entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.entries -= self.entries
