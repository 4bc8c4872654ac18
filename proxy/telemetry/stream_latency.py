"""Token latencies of one request's engine streams.

Filled by the generation as deltas arrive, read by `request_watcher` when the request ends.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.output import TokenDelta

# Upper bounds for the time between two responses of a stream.
GAP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class RequestLatency:
    """Latencies of all streams of a request: its choices, attempts and tool rounds.

    gaps: the number of gaps between two responses in each of GAP_BUCKETS_S, and above the last.
    gaps_s: their sum. token_s: for each stream, the mean time of a token after the first response.
    queues_s: for each stream, its wait in the engine, if the engine reports it.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.gaps = [0] * (len(GAP_BUCKETS_S) + 1)
        self.queues_s: list[float] = []
        self._streams: list[StreamLatency] = []

    def stream(self, asked: EngineRequest) -> StreamLatency:
        stream = StreamLatency(self, counts_gaps=not asked.echoes_prompt)
        self._streams.append(stream)
        return stream

    @property
    def gaps_s(self) -> float:
        return sum(stream.gaps_s for stream in self._streams)

    @property
    def token_s(self) -> list[float]:
        return [stream.token_s for stream in self._streams if stream.token_s is not None]

    @property
    def queue_s(self) -> float | None:
        """The longest wait, since the streams of one request mostly wait at the same time."""
        return max(self.queues_s, default=None)


class StreamLatency:
    """Implements domain.watcher.StreamWatch.

    counts_gaps: false for a stream that echoes its prompt: those deltas were not generated.
    """

    __slots__ = ("_counts_gaps", "_first_at", "_last_at", "_request", "_tokens")

    def __init__(self, request: RequestLatency, *, counts_gaps: bool) -> None:
        self._request = request
        self._counts_gaps = counts_gaps
        self._first_at: float | None = None
        self._last_at = 0.0
        self._tokens = 0  # after the first response

    def see(self, delta: TokenDelta) -> None:
        if delta.queue_s is not None:
            self._request.queues_s.append(delta.queue_s)
        if not (delta.token_bytes and self._counts_gaps):
            return
        request = self._request
        now = request.clock()
        if self._first_at is None:
            self._first_at = now
        else:
            request.gaps[bisect_left(GAP_BUCKETS_S, now - self._last_at)] += 1
            self._tokens += len(delta.token_bytes)
        self._last_at = now

    @property
    def token_s(self) -> float | None:
        """Mean time of a token after the first response; None if no token came after it."""
        if self._first_at is None or not self._tokens:
            return None
        return (self._last_at - self._first_at) / self._tokens

    @property
    def gaps_s(self) -> float:
        """The sum of the stream's gaps."""
        return 0.0 if self._first_at is None else self._last_at - self._first_at
