"""Sets the capacity of each queue `pool/Triton model`: how many streams its endpoints run at once.

Run with the application; see docs/scheduling.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil

from typing_extensions import Self

from proxy import background
from proxy.domain.endpoints import EngineLoad
from proxy.domain.model import ModelFacts
from proxy.domain.scheduling import QueueState, Scheduler
from proxy.pools.breaker import Clock
from proxy.pools.pool import Pool, Served
from proxy.pools.pool_set import PoolSet

ROWS_A_SPARE = 8
ROWS_A_SPARE_AT_MOST = 4  # more would wait in the engine, where tenants do not count
LEAST_SPARE_AT_MOST = 2
KV_NEARLY_FULL = 0.9

GROWS_LESS_AFTER = 10  # reports without an idle row
EVERY_S = 1.0  # as often as loads are read
LOOKS = 3  # streams of others count if each of so many looks finds them


def usual_spare(rows: int) -> tuple[int, int]:
    """Streams that an engine has beyond its rows, at least and at most.

    When a row becomes free, its next stream is there.
    """
    most = max(LEAST_SPARE_AT_MOST, ceil(rows / ROWS_A_SPARE_AT_MOST))
    return max(1, ceil(rows / ROWS_A_SPARE)), most


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
        "_bounds",
        "_busy_reports",
        "_most",
        "in_engine",
        "is_stale",
        "rows",
        "spare",
        "streams",
    )

    def __init__(self, rows: int, spare: tuple[int, int]) -> None:
        self.rows = rows
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
            self._note_idle(load.waiting == 0 and load.running < self.rows)
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
        self._most = max(1, self.rows + spare)


Rows = Callable[[ModelFacts], int | None]
Share = Callable[[int], int]
"""The part of the engines' streams that this proxy has sent."""


class QueueCapacities:
    """`async with` keeps them up to date: when endpoints or their models change, and once a second
    for what the engines report.

    spare: streams beyond its rows that each engine gets; None for `usual_spare`. rows: of an engine
    by its facts, where it or models.yaml says them. holds: whether requests of a queue wait while
    no endpoint serves it.
    """

    def __init__(
        self,
        pools: PoolSet,
        scheduler: Scheduler,
        *,
        spare: int | None = None,
        share: Share = lambda streams: streams,
        rows: Rows = lambda facts: facts.rows if facts.says_rows else None,
        holds: Callable[[str], bool] = lambda queue: False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._pools = pools
        self._scheduler = scheduler
        self._spare = spare
        self._share = share
        self._rows = rows
        self._holds = holds
        self._queues: dict[str, QueueRooms] = {}
        self._clock = clock
        self._looked_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.update()
        self._tasks = [asyncio.create_task(self._follow())]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)

    async def update(self) -> None:
        """Sees what has changed. A queue without a ready endpoint keeps the capacity it had, or has
        none where its requests are held.
        """
        is_due = self._clock() - self._looked_at >= EVERY_S
        states: dict[str, QueueState] = {}
        if is_due:
            self._looked_at = self._clock()
            states = {one.queue: one for one in self._scheduler.states()}
        gone = set(self._queues)
        for pool in self._pools.pools.values():
            for queue, served in served_by_queue(pool).items():
                if not served and self._holds(queue):
                    gone.add(queue)
                    continue
                gone.discard(queue)
                if not served:
                    continue
                rooms = self._queues.setdefault(queue, QueueRooms())
                rooms.keep(served, self._spare, self._rows)
                if is_due:
                    rooms.look(states.get(queue))
                sent, rooms.sent = (
                    rooms.sent,
                    (
                        rooms.capacity(self._share),
                        self._share(rooms.spare),
                    ),
                )
                if rooms.sent != sent:
                    self._scheduler.set_capacity(queue, rooms.sent[0], spare=rooms.sent[1])
            await asyncio.sleep(0)  # other tasks run between two pools: each has up to 1,000
        for queue in gone:
            if not self._holds(queue):
                del self._queues[queue]
                self._scheduler.set_capacity(queue, None)
            elif (rooms := self._queues.setdefault(queue, QueueRooms())).sent != (0, 0):
                rooms.sent = (0, 0)
                self._scheduler.set_capacity(queue, 0)

    async def _follow(self) -> None:
        changed = self._pools.changed
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), EVERY_S)
            changed.clear()
            await self.update()


class QueueRooms:
    """The engines behind one queue that get streams now. sent: capacity and spare, as it is set."""

    def __init__(self) -> None:
        self.sent: tuple[int | None, int] | None = None
        self._rooms: dict[Served, EngineRoom] = {}
        self._others: deque[int] = deque(maxlen=LOOKS)
        self._says_rows = False

    def keep(self, served: Iterable[Served], spare: int | None, rows_of: Rows) -> None:
        kept, self._rooms, self._says_rows = self._rooms, {}, False
        for one in served:
            said = rows_of(one.model.facts)
            rows = said or one.model.facts.rows
            self._says_rows |= said is not None
            room = kept.get(one)
            if room is None or room.rows != rows:
                bounds = usual_spare(rows) if spare is None else (spare, spare)
                room = EngineRoom(rows, bounds)
            self._rooms[one] = room

    def look(self, state: QueueState | None) -> None:
        """Takes over what the engines reported last. state: of this proxy's own streams.

        Both numbers are counted at different times, so that a single look may find streams of
        others where there are none.
        """
        for served, room in self._rooms.items():
            room.see(served.load, has_backlog=state is not None and state.waiting > 0)
        in_engines = sum(room.in_engine or 0 for room in self._fresh())
        running = 0 if state is None else state.running
        self._others.append(max(0, in_engines - running))

    def capacity(self, share_of: Share) -> int | None:
        """Streams that this proxy may run, at least one; None where no engine says its rows.

        An engine whose load is stale counts nothing, unless all are: then it is probably the way
        to the metrics that is broken, and rows are all that is known. What others run beyond
        their shares is taken off.
        """
        if not self._says_rows:
            return None
        total = sum(room.streams for room in self._fresh())
        share = share_of(total)
        others = min(self._others) if len(self._others) == LOOKS else 0
        return max(1, share - max(0, others - (total - share)))

    @property
    def spare(self) -> int:
        """How many of the streams wait in the engines, of all proxies."""
        return sum(room.spare for room in self._fresh())

    def _fresh(self) -> Collection[EngineRoom]:
        rooms = self._rooms.values()
        return [room for room in rooms if not room.is_stale] or rooms


def served_by_queue(pool: Pool) -> Mapping[str, list[Served]]:
    """By queue, what the endpoints serve that get streams; ejected ones only if all are.

    Nothing for a queue whose endpoints get none now.
    """
    queues: dict[str, list[Served]] = {}
    for endpoint in pool.endpoints.values():
        for name, one in endpoint.served.items():
            served = queues.setdefault(f"{pool.name}/{name}", [])
            if endpoint.gets_streams and one.why_not_ready is None:
                served.append(one)
    if pool.ejected:
        for queue, served in queues.items():
            admitted = [one for one in served if one.endpoint.name not in pool.ejected]
            queues[queue] = admitted or served
    return queues
