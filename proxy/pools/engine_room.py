"""How many streams one engine should have at once, from its rows and from what it reports.

Used by `queue_capacity`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from proxy.domain.endpoints import EngineLoad

ROWS_A_SPARE = 8
ROWS_A_SPARE_AT_MOST = 4  # more would wait in the engine, where tenants do not count
LEAST_SPARE_AT_MOST = 2
KV_NEARLY_FULL = 0.9

GROWS_LESS_AFTER = 10  # reports without an idle row

Spare = Callable[[int], tuple[int, int]]
"""Rows of an engine -> streams that it has beyond them, at least and at most."""


def usual_spare(rows: int) -> tuple[int, int]:
    """When a row becomes free, its next stream is there."""
    most = max(LEAST_SPARE_AT_MOST, ceil(rows / ROWS_A_SPARE_AT_MOST))
    return max(1, ceil(rows / ROWS_A_SPARE)), most


def fixed_spare(streams: int) -> Spare:
    return lambda rows: (streams, streams)


class EngineRoom:
    """One model's engine on one endpoint.

    streams: how many it should have now. spare: those beyond its rows. in_engine: how many it says
    it has, of every proxy; None where it does not say. is_stale: what it says is too old to be
    used.

    A report of an idle row, while streams wait here, adds a spare stream: the next ones came too
    late. It is taken away again after GROWS_LESS_AFTER reports without an idle row.

    An engine whose KV cache is nearly full may run fewer requests than it has rows, as TensorRT-LLM
    does with GUARANTEED_NO_EVICT. Then `streams` falls to what runs, and grows back by one with
    each report that finds its own queue short.
    """

    __slots__ = (
        *("_bounds", "_busy_reports", "_most", "_rows"),
        *("in_engine", "is_stale", "spare", "streams"),
    )

    def __init__(self, rows: int, spare: tuple[int, int]) -> None:
        self._rows = rows
        self._bounds = spare
        self._busy_reports = 0
        self._set_spare(spare[0])
        self.streams = self._most
        self.in_engine: int | None = None
        self.is_stale = False

    def see(self, load: EngineLoad, *, has_backlog: bool = False) -> None:
        """Takes a report over. A stale one changes nothing but `is_stale`.

        has_backlog: streams wait for this engine in our queue.
        """
        self.is_stale = load.is_stale
        if load.is_stale:
            return
        if load.waiting is None or load.running is None:
            self.in_engine, self.streams = None, self._most
            return
        self.in_engine = load.waiting + load.running
        if has_backlog:
            self._note_idle(load.waiting == 0 and load.running < self._rows)
        is_short_of_kv = (load.kv_in_use or 0.0) >= KV_NEARLY_FULL
        if load.waiting <= self.spare:
            self.streams = min(self._most, self.streams + 1)
        elif is_short_of_kv:
            self.streams = min(self._most, max(1, load.running + self.spare))

    def _note_idle(self, is_idle: bool) -> None:
        least, most = self._bounds
        self._busy_reports = 0 if is_idle else self._busy_reports + 1
        if is_idle:
            self._set_spare(min(most, self.spare + 1))
        elif self._busy_reports >= GROWS_LESS_AFTER:
            self._busy_reports = 0
            self._set_spare(max(least, self.spare - 1))

    def _set_spare(self, spare: int) -> None:
        self.spare = spare
        self._most = max(1, self._rows + spare)
