"""The way of tokens to Triton: one thread sends for all streams.

Handing a response to Triton takes longer than a decode step of a small model, so the decode loop
only leaves tokens here. With few streams every token leaves at once. With more, a stream's tokens
are joined for as long as it takes to keep all responses together within what Triton, the proxy and
the client carry; the first and the last token never wait, and none waits longer than `hold_s`, or
twice that where more than CROWD_TOKENS_PER_S come.
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
import time
from collections import Counter
from typing import Any

from leases import Leases
from stream import Stream

logger = logging.getLogger(__name__)

FEW_STREAMS = 4
LOOK_EVERY_S = 0.1  # for callers that have gone: asking Triton is a round trip to its process
LOOKS_AT_ONCE = 64
DEADLINES_EVERY_S = 0.5
CROWD_TOKENS_PER_S = 10_000


class Outbox:
    """The sending thread. `totals`: prompt and generated tokens, responses, and streams by end."""

    def __init__(self, leases: Leases, *, responses_per_s: float, hold_s: float) -> None:
        self.totals: Counter[str] = Counter()
        self._leases = leases
        self._responses_per_s = responses_per_s
        self._hold_s = hold_s
        self._posted: queue.SimpleQueue[Stream | None] = queue.SimpleQueue()
        self._held: list[tuple[float, int, Stream]] = []  # a heap by when they are due
        self._open: dict[Stream, None] = {}  # in the order in which they are looked at
        self._looked_at = self._deadlines_at = 0.0
        self._tokens_at_look = 0
        self._is_crowded = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    @property
    def unfinished(self) -> int:
        return len(self._open)

    def open(self, sender: Any, prompt_tokens: int, lease: str = "") -> Stream:
        """A sink for one request's tokens, which runs under that lease."""
        stream = Stream(sender, prompt_tokens, self._posted.put, lease)
        self._open[stream] = None
        self.totals["prompt_tokens"] += prompt_tokens
        return stream

    def reject(self, sender: Any, code: str, message: str) -> None:
        """Ends a request that is not admitted, and so is never among the unfinished ones."""
        self.totals["refused"] += 1
        Stream(sender, 0, self._posted.put).refuse("", message, code=code)

    def close(self) -> None:
        """After everything that waits has been sent."""
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
                self._take(stream)
            self._send_due()
            self._look_around()

    def _pause_s(self) -> float:
        if not self._held:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, max(0.0, self._held[0][0] - time.monotonic()))

    def _take(self, stream: Stream) -> None:
        """Sends it, or holds it until its turn."""
        due = 0.0 if stream.sent_at is None else stream.sent_at + self._pace_s()
        if stream.is_urgent or due <= time.monotonic():
            self._send(stream)
        else:
            heapq.heappush(self._held, (due, id(stream), stream))

    def _pace_s(self) -> float:
        """From one response of a stream to its next."""
        streams = len(self._open)
        if streams <= FEW_STREAMS:
            return 0.0
        hold_s = self._hold_s * 2 if self._is_crowded else self._hold_s
        return min(hold_s, streams / self._responses_per_s)

    def _send_due(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            self._send(heapq.heappop(self._held)[2])

    def _send(self, stream: Stream) -> None:
        try:
            tokens, end = stream.send()
        except Exception:
            logger.exception("a response could not be sent")
            tokens, end = 0, "failed"
            stream.is_gone = True
        if not tokens and end is None:
            return  # it was sent meanwhile, as urgent
        stream.sent_at = time.monotonic()
        self.totals["responses"] += 1
        self.totals["generated_tokens"] += tokens
        if end is not None and stream in self._open:
            del self._open[stream]
            self.totals[end] += 1

    def _look_around(self) -> None:
        since_s = time.monotonic() - self._looked_at
        if since_s < LOOK_EVERY_S:
            return
        self._looked_at += since_s
        tokens = self.totals["generated_tokens"]
        self._is_crowded = tokens - self._tokens_at_look > CROWD_TOKENS_PER_S * since_s
        self._tokens_at_look = tokens
        self._look_for_the_gone()
        self._end_by_lease()
        if self._looked_at >= self._deadlines_at:
            self._deadlines_at = self._looked_at + DEADLINES_EVERY_S
            self._end_by_deadline()

    def _look_for_the_gone(self) -> None:
        for stream in list(self._open)[:LOOKS_AT_ONCE]:
            stream.look()
            self._open[stream] = self._open.pop(stream)  # to the end

    def _end_by_lease(self) -> None:
        if over := self._leases.look():
            for stream in list(self._open):
                stream.is_gone = stream.is_gone or stream.lease in over

    def _end_by_deadline(self) -> None:
        now = time.monotonic()
        for stream in list(self._open):
            stream.end_if_late(now)
