"""Log-probabilities that are held for answers in one piece: bounded for all of them together."""

from __future__ import annotations

from typing_extensions import Self

from triton_openai.proxy.domain.errors import RateLimited


class Held:
    """The log-probabilities that one request holds; all are given back when its `with` ends."""

    __slots__ = ("_owner", "entries")

    def __init__(self, owner: HeldLogProbs) -> None:
        self._owner = owner
        self.entries = 0

    def add(self, entries: int) -> None:
        """Raises RateLimited: all requests together hold too many."""
        self._owner.add(entries)
        self.entries += entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self.entries)


class HeldLogProbs:
    """`most`: entries of all requests of this process, alternatives counted like tokens."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries = 0

    def held(self) -> Held:
        """For one request."""
        return Held(self)

    def add(self, entries: int) -> None:
        if self._entries + entries > self._most:
            raise RateLimited(
                f"This server holds at most {self._most} log-probabilities for answers that are "
                "not streamed, and they are all in use. Use 'stream', or ask for fewer."
            )
        self._entries += entries

    def give_back(self, entries: int) -> None:
        self._entries -= entries
