"""A bound on the log-probabilities that all non-streamed answers hold in memory together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_openai.proxy.domain.errors import RateLimited


class LogProbShare:
    """One request's part of the budget."""

    def __init__(self, owner: LogProbBudget) -> None:
        self._owner = owner
        self.entries = 0

    def add(self, entries: int) -> None:
        """Takes more of the budget. Raises RateLimited: all requests together hold too many."""
        self._owner.take(entries)
        self.entries += entries


class LogProbBudget:
    """`most`: entries of all requests of this process; each alternative is an entry, too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries = 0

    @contextmanager
    def share(self) -> Iterator[LogProbShare]:
        """A share for one request, which is given back when the `with` ends."""
        one = LogProbShare(self)
        try:
            yield one
        finally:
            self._entries -= one.entries

    def take(self, entries: int) -> None:
        """Called by shares, which give back what they took. Raises RateLimited."""
        if self._entries + entries > self._most:
            raise RateLimited(
                f"This server holds at most {self._most} log-probabilities for answers that are "
                "not streamed, and they are all in use. Use 'stream', or ask for fewer."
            )
        self._entries += entries
