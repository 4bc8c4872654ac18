"""Token latencies of one request's engine streams.

Filled by the generation as deltas arrive, read by `request_watcher` when the request ends.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable

from proxy.domain.engine import EngineRequest
from proxy.domain.output import EngineTimes, TokenDelta
from proxy.telemetry.buckets import DURATION_BUCKETS_S


class RequestLatency:
    """Latencies of all streams of a request: its choices, attempts and tool rounds.

    gaps: the number of gaps between two responses in each of DURATION_BUCKETS_S, and above the
    last. gaps_s: their sum. token_s: for each stream, the mean time of a token after the first
    response. queues_s, times: for each stream, its wait in the engine, and its prefill and decode
    times, if the engine reports them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.gaps = [0] * (len(DURATION_BUCKETS_S) + 1)
        self.queues_s: list[float] = []
        self.times: list[EngineTimes] = []
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
        if delta.times is not None:
            self._request.times.append(delta.times)
        if not (delta.token_bytes and self._counts_gaps):
            return
        request = self._request
        now = request.clock()
        if self._first_at is None:
            self._first_at = now
        else:
            request.gaps[bisect_left(DURATION_BUCKETS_S, now - self._last_at)] += 1
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
