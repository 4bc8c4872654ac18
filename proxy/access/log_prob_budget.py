"""A bound on the log-probabilities that all non-streamed answers hold in memory together."""

from __future__ import annotations

from typing_extensions import Self

from proxy.domain.errors import ErrorCode, RateLimited

MOST_HELD = 1_000_000


class LogProbShare:
    """One request's part of the budget; it is given back when the `with` ends."""

    __slots__ = ("_owner", "entries")

    def __init__(self, owner: LogProbBudget) -> None:
        self._owner = owner
        self.entries = 0

    def add(self, entries: int) -> None:
        """Takes more of the budget. Raises RateLimited: all requests together hold too many."""
        self._owner.take(entries)
        self.entries += entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self.entries)


class LogProbBudget:
    """`most`: entries of all requests of this process; each alternative is an entry, too."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._entries = 0

    def share(self) -> LogProbShare:
        """A share for one request, which is given back when its `with` ends."""
        return LogProbShare(self)

    def take(self, entries: int) -> None:
        """Called by shares, which give it back. Raises RateLimited: too few entries are left."""
        if self._entries + entries > self._most:
            raise RateLimited(
                f"This server holds at most {self._most} log-probabilities for answers that are "
                "not streamed, and they are all in use. Use 'stream', or ask for fewer.",
                code=ErrorCode.QUEUE_FULL,
            )
        self._entries += entries

    def give_back(self, entries: int) -> None:
        self._entries -= entries
