"""Sends the responses of all streams to Triton, from one thread.

Sending a response to Triton takes longer than a decode step of a small model, so the decode loop
only posts a stream here. With few streams every token is sent at once. With more, the writer joins
a stream's tokens into one response. The first and the last token of a stream never wait.

Triton queues without bound what its models and the client have not taken, so responses that come
faster than the detokenizer and the proxy take them would wait longer and longer. The writer stays
below that rate at any number of streams.
"""

from __future__ import annotations

import heapq
import logging
import os
import queue
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from leases import Leases
from stream import Stream

logger = logging.getLogger(__name__)

FEW_STREAMS = 4
CHECK_EVERY_S = 0.1  # for disconnected clients: asking Triton is a round trip to its process
CHECKS_AT_ONCE = 64
DEADLINES_EVERY_S = 0.5
# Responses a second. A response costs Triton and the proxy half a millisecond of CPU together, and
# the processes of engine and detokenizer carry 8,000 to 12,000 at most, on any number of cores.
MOST_A_CORE, MOST = 1000, 4000
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = CPU_QUOTA) -> float:
    """The cores that this process may use, here and now: a container's quota may be a fraction."""
    cores = float(len(os.sched_getaffinity(0)))
    given = quota.read_text().split() if quota.is_file() else ["max"]
    return cores if given[0] == "max" else min(cores, int(given[0]) / int(given[1]))


class ResponseWriter:
    """`totals`: prompt and generated tokens, responses, and streams by how they ended.

    cores: what this process may use. wanted_a_core: responses a second, fewer than `cores` carry;
    kept as long as no token waits longer than `hold_s` for it. With a hold_s of 0 each token is
    sent at once, at any rate.
    """

    def __init__(
        self, leases: Leases, *, cores: float, wanted_a_core: float, hold_s: float
    ) -> None:
        self.totals: Counter[str] = Counter()
        self._leases = leases
        self._most_per_s = min(MOST_A_CORE * cores, MOST)
        self._wanted_per_s = wanted_a_core * cores
        self._hold_s = hold_s
        self._posted: queue.SimpleQueue[Stream | None] = queue.SimpleQueue()
        self._held: list[tuple[float, int, Stream]] = []  # a heap, by the time to send
        self._open: dict[Stream, None] = {}  # in the order of the next checks
        self._checked_at = self._deadlines_at = 0.0
        self._thread = threading.Thread(target=self._run, name="response-writer", daemon=True)
        self._thread.start()

    @property
    def unfinished(self) -> int:
        return len(self._open)

    def open(self, sender: Any, prompt_tokens: int, lease: str = "") -> Stream:
        """The sink of a new request. `lease`: the id of its lease, empty for none."""
        stream = Stream(sender, prompt_tokens, self._posted.put, lease)
        self._open[stream] = None
        return stream

    def reject(self, sender: Any, code: str, message: str) -> None:
        """Ends a request that is not admitted; it never counts as unfinished."""
        self.totals["refused"] += 1
        Stream(sender, 0, self._posted.put).refuse("", message, code=code)

    def close(self) -> None:
        """Returns when everything that was posted has been sent."""
        self._posted.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                stream = self._posted.get(timeout=self._pause_s())
            except queue.Empty:
                pass
            else:
                if stream is None:
                    return
                self._send_or_hold(stream)
            self._send_due()
            self._check()

    def _pause_s(self) -> float:
        if not self._held:
            return CHECK_EVERY_S
        return min(CHECK_EVERY_S, max(0.0, self._held[0][0] - time.monotonic()))

    def _send_or_hold(self, stream: Stream) -> None:
        due = 0.0 if stream.sent_at is None else stream.sent_at + self._interval_s()
        if stream.is_urgent or due <= time.monotonic():
            self._send(stream)
        else:
            heapq.heappush(self._held, (due, id(stream), stream))

    def _interval_s(self) -> float:
        """The time between two responses of one stream."""
        streams = len(self._open)
        if streams <= FEW_STREAMS or not self._hold_s:
            return 0.0
        joined_s = min(self._hold_s, streams / self._wanted_per_s)
        return max(joined_s, streams / self._most_per_s)

    def _send_due(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            self._send(heapq.heappop(self._held)[2])

    def _send(self, stream: Stream) -> None:
        try:
            tokens, prompt_tokens, end = stream.send()
        except Exception:
            logger.exception("cannot send a response")
            tokens, prompt_tokens, end = 0, 0, "failed"
            stream.is_gone = True
        if not tokens and end is None:
            return  # an urgent send came first
        stream.sent_at = time.monotonic()
        self.totals["responses"] += 1
        self.totals["prompt_tokens"] += prompt_tokens
        self.totals["generated_tokens"] += tokens
        if end is not None and stream in self._open:
            del self._open[stream]
            self.totals[end] += 1

    def _check(self) -> None:
        """Ten times a second: disconnected clients, leases and deadlines."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        self._check_clients()
        self._check_leases()
        if now >= self._deadlines_at:
            self._deadlines_at = now + DEADLINES_EVERY_S
            self._check_deadlines(now)

    def _check_clients(self) -> None:
        for stream in list(self._open)[:CHECKS_AT_ONCE]:
            stream.check_client()
            self._open[stream] = self._open.pop(stream)  # to the end

    def _check_leases(self) -> None:
        if over := self._leases.check():
            for stream in list(self._open):
                stream.is_gone = stream.is_gone or stream.lease in over

    def _check_deadlines(self, now: float) -> None:
        for stream in list(self._open):
            stream.check_deadline(now)
