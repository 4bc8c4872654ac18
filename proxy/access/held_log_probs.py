"""Log-probabilities that are held for answers in one piece: bounded for all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_openai.proxy.domain.errors import RateLimited


class Held:
    """What one request holds."""

    def __init__(self, owner: HeldLogProbs) -> None:
        self._owner = owner
        self.entries = 0

    def add(self, entries: int) -> None:
        """Raises RateLimited: all requests together hold too many."""
        self._owner.add(entries)
        self.entries += entries


class HeldLogProbs:
    """`most`: entries of all requests of this process, alternatives counted like tokens."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries = 0

    @contextmanager
    def held(self) -> Iterator[Held]:
        """For one request: all that it holds is given back at the end."""
        one = Held(self)
        try:
            yield one
        finally:
            self._entries -= one.entries

    def add(self, entries: int) -> None:
        if self._entries + entries > self._most:
            raise RateLimited(
                f"This server holds at most {self._most} log-probabilities for answers that are "
                "not streamed, and they are all in use. Use 'stream', or ask for fewer."
            )
        self._entries += entries
