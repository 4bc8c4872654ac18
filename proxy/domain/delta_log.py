"""The engine's deltas of one answer, by which another process continues it token for token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.domain.output import TokenDelta

NumberedDelta = tuple[int, TokenDelta]


@dataclass(slots=True)
class DeltaLog:
    """An answer's engine streams follow one another, and have numbers from 0.

    logged: of the process that began the answer; none for a new one.
    """

    logged: Sequence[NumberedDelta] = ()
    _new: list[NumberedDelta] = field(default_factory=list)
    _stream: int = -1

    def begin_stream(self) -> list[TokenDelta]:
        """The deltas that the next stream has had already."""
        self._stream += 1
        return [delta for stream, delta in self.logged if stream == self._stream]

    def add(self, delta: TokenDelta) -> None:
        self._new.append((self._stream, delta))

    def take(self) -> list[NumberedDelta]:
        """Those that were added since the last call."""
        new, self._new = self._new, []
        return new
