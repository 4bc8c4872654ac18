"""The way of tokens to Triton: one thread sends for all streams.

Handing a response to Triton takes longer than a decode step of a small model, so the decode loop
only leaves tokens here. What has gathered for a stream when its turn comes leaves as one response:
with few streams that is every token by itself.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from itertools import islice
from typing import Any

from stream import Stream

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1  # for callers that have gone: asking Triton is a round trip to its process
LOOKS_AT_ONCE = 64


class Outbox:
    """The sending thread. `totals`: prompt and generated tokens, responses, and streams by end."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._waiting: queue.SimpleQueue[Stream | None] = queue.SimpleQueue()
        self._open: dict[Stream, None] = {}  # in the order in which they are looked at
        self._look_at = 0.0
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    @property
    def unfinished(self) -> int:
        return len(self._open)

    def open(self, sender: Any, prompt_tokens: int) -> Stream:
        """A sink for one request's tokens."""
        stream = Stream(sender, prompt_tokens, self._waiting.put)
        self._open[stream] = None
        self.totals["prompt_tokens"] += prompt_tokens
        return stream

    def close(self) -> None:
        """After everything that waits has been sent."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                stream = self._waiting.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                stream = None
            else:
                if stream is None:
                    return
                self._send(stream)
            self._look_for_the_gone()

    def _send(self, stream: Stream) -> None:
        try:
            tokens, end = stream.send()
        except Exception:
            logger.exception("a response could not be sent")
            tokens, end = 0, "failed"
            stream.is_gone = True
        self.totals["responses"] += 1
        self.totals["generated_tokens"] += tokens
        if end is not None and stream in self._open:
            del self._open[stream]
            self.totals[end] += 1

    def _look_for_the_gone(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        for stream in list(islice(list(self._open), LOOKS_AT_ONCE)):
            stream.look()
            self._open[stream] = self._open.pop(stream)  # to the end
