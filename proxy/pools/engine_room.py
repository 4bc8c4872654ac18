"""How many streams one engine should have at once, from its rows and from what it reports.

Used by `queue_capacity`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from triton_openai.proxy.domain.endpoints import EngineLoad

ROWS_A_SPARE = 8
KV_NEARLY_FULL = 0.9

Spare = Callable[[int], int]
"""Rows of an engine -> streams that it may have beyond them."""


def usual_spare(rows: int) -> int:
    """One for each ROWS_A_SPARE rows: when a row becomes free, its next stream is there already."""
    return max(1, ceil(rows / ROWS_A_SPARE))


class EngineRoom:
    """One model's engine on one endpoint.

    streams: how many it should have now. in_engine: how many it says it has, of every proxy; None
    where it does not say. is_stale: what it says is too old to be used.

    An engine whose KV cache is nearly full may run fewer requests than it has rows, as TensorRT-LLM
    does with GUARANTEED_NO_EVICT. Then `streams` falls to what runs, and grows back by one with
    each report that finds its own queue short.
    """

    __slots__ = ("_most", "_spare", "in_engine", "is_stale", "streams")

    def __init__(self, rows: int, spare: int) -> None:
        self._spare = spare
        self._most = max(1, rows + spare)
        self.streams = self._most
        self.in_engine: int | None = None
        self.is_stale = False

    def see(self, load: EngineLoad) -> None:
        """Takes a report over. A stale one changes nothing but `is_stale`."""
        self.is_stale = load.is_stale
        if load.is_stale:
            return
        if load.waiting is None or load.running is None:
            self.in_engine, self.streams = None, self._most
            return
        self.in_engine = load.waiting + load.running
        is_short_of_kv = (load.kv_in_use or 0.0) >= KV_NEARLY_FULL
        if load.waiting <= self._spare:
            self.streams = min(self._most, self.streams + 1)
        elif is_short_of_kv:
            self.streams = min(self._most, max(1, load.running + self._spare))
