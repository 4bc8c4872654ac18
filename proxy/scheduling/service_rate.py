"""How fast a queue's rows become free, measured from its streams."""

from __future__ import annotations

import math

START_S = 10.0  # of a stream, before one has ended
REMEMBERED = 256  # streams that have ended, at most


class ServiceRate:
    """Counts ended streams, and the time that rows were in use: their ratio is the mean time of a
    stream, those that still run included.
    """

    def __init__(self, now: float) -> None:
        self._ended = 0.0
        self._row_s = 0.0
        self._running = 0
        self._at = now
        self._tokens = 0.0

    def running(self, streams: int, now: float) -> None:
        self._row_s += self._running * (now - self._at)
        self._at = now
        self._running = streams

    def end(self, tokens: int) -> None:
        """tokens: that the stream has generated."""
        self._ended += 1
        self._tokens += tokens
        if self._ended > REMEMBERED:
            self._ended /= 2
            self._row_s /= 2
            self._tokens /= 2

    def stream_tokens(self) -> float:
        """The mean of streams that have ended."""
        return self._tokens / self._ended if self._ended else 0.0

    def stream_s(self, now: float, guess_s: float = START_S) -> float:
        """The mean time that a stream keeps its row. guess_s: before one has ended."""
        row_s = self._row_s + self._running * (now - self._at)
        guessed = 1 / (1 + self._ended)
        return (row_s + guess_s * guessed) / (self._ended + guessed)

    def wait_s(self, ended: int, rows: int, now: float) -> float:
        """Until so many streams will have ended, in the mean."""
        return ended * self.stream_s(now) / max(rows, 1)

    def surely_s(self, ended: int, rows: int, now: float) -> float:
        """The same, so that it is longer than the real time in about 19 of 20 cases.

        Streams that end at random times at a constant rate: n of them take n ± 2 sqrt(n) times
        the mean.
        """
        return self.wait_s(1, rows, now) * (ended + 2 * math.sqrt(ended) + 1)
