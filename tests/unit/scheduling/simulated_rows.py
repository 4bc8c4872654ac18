"""An engine's rows and its callers on a simulated clock: hours of load in seconds of CPU."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Standing, Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.stream import State
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream

STEP_S = 0.025  # of all rows: each gets one token
PREFILL_TOKENS_S = 8_000
BLOCK = 16  # of the prefix cache, in tokens
QUEUE = "pool/model"


@dataclass
class Callers:
    """One tenant's. streams: callers that come again `pause_s` after their answer. every_s: the
    mean time between others that come once, at random. prompt, output: tokens, the least and the
    most. returns: a caller that is refused comes back when it is told to.
    """

    tenant: str
    streams: int = 0
    every_s: float = 0.0
    pause_s: float = 0.0
    weight: float = 1.0
    priority: int = 0
    prompt: tuple[int, int] = (50, 4_000)
    output: tuple[int, int] = (50, 350)
    returns: bool = False
    may_yield: bool = False


@dataclass
class Seen:
    """Of one tenant. service: by time, of streams that run. waits_s: until granted. ttfts_s: until
    the first token. passed: streams of others that were granted a row while one waited, by stream.
    """

    service: float = 0.0
    tokens: int = 0  # generated
    ended: int = 0
    waits_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    refused: int = 0  # or waited in vain
    returned: int = 0
    refused_again: int = 0


class _Request(QueuedStream):
    """One stream of a queue; a request that is continued has several."""

    __slots__ = (
        *("began_s", "callers", "came_s", "comes_again", "has_returned", "output", "part_tokens"),
        *("rows", "seen", "since_s", "told"),
    )

    def granted(self) -> None:
        self.rows.began(self)

    def refused(self, error: RateLimited) -> None:
        self.rows.refuse(self, error)

    def preempted(self) -> None:
        super().preempted()
        self.rows.stop(self)

    def moved(self, standing: Standing) -> None:
        super().moved(standing)
        if not self.told:
            self.told = (standing, self.rows.clock.now, self.rows.grants)

    def generated(self) -> int:
        return self.rows.generated(self)


class SimulatedRows:
    """An engine that runs `rows` streams, and keeps `spare` others waiting in the order in which
    they came. One that took a row over goes first.

    charge_s: how often running streams are charged. has_prefix_cache: a stream that is continued
    computes only its last block again.
    """

    def __init__(
        self,
        rows: int,
        settings: Scheduling,
        *,
        spare: int = 0,
        charge_s: float = 0.25,
        has_prefix_cache: bool = True,
        takes_priority: bool = True,
    ) -> None:
        self.clock = Clock()
        self.queue = FairQueue(settings, self.clock)
        self.queue.set_capacity(rows + spare, spare)
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.grants = 0
        self.foretold: list[tuple[float, float]] = []  # position and wait: told / true
        self._rows = rows
        self._takes_priority = takes_priority
        self._has_prefix_cache = has_prefix_cache
        self._random = random.Random(1)
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = count()
        self._running: dict[_Request, None] = {}  # in the engine's rows
        self._waiting: list[_Request] = []  # in the engine
        self._charge_s = charge_s
        self._at(charge_s, self._charge)

    def add(self, callers: Callers) -> None:
        for _ in range(callers.streams):
            self._at(self._random.random(), self._come, callers, True)
        if callers.every_s:
            self._at(self._pause(callers), self._come_once, callers)

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            time, _, call, arguments = heapq.heappop(self._events)
            self._advance(time)
            call(*arguments)
        self._advance(until_s)
        self._charge_all()

    def began(self, request: _Request) -> None:
        now, seen = self.clock.now, self.seen[request.ticket.tenant]
        if not request.ticket.has_begun:
            seen.waits_s.append(now - request.came_s)
            seen.service += request.ticket.prompt_tokens
            seen.passed.append(self.grants - request.seen)
            if request.told:
                standing, at, grants = request.told
                true = (self.grants - grants + 1, now - at)
                self.foretold.append((standing.position / true[0], standing.wait_s / true[1]))
            self.grants += 1
        is_urgent = request.took_over and self._takes_priority
        self._waiting.insert(0 if is_urgent else len(self._waiting), request)
        if is_urgent and len(self._running) == self._rows:
            lower = [each for each in self._running if not each.took_over]
            if lower:
                self._take_row(lower[-1])
        self._start_next()

    def stop(self, request: _Request) -> None:
        self._at(self.clock.now + STEP_S, self._stopped, request)

    def generated(self, request: _Request) -> int:
        tokens = request.part_tokens
        if request in self._running:
            tokens += max(int((self.clock.now - request.since_s) / STEP_S + 1e-6), 0)
        return min(tokens, request.output)

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._rows:
            request = self._waiting.pop(0)
            self._running[request] = None
            context = request.ticket.prompt_tokens + request.part_tokens
            if request.ticket.has_begun or request.part_tokens:
                context = BLOCK if self._has_prefix_cache else request.callers.prompt[0]
            request.since_s = self.clock.now + context / PREFILL_TOKENS_S
            self._at(request.since_s + STEP_S, self._see_first, request, request.since_s, context)
            left = request.output - request.part_tokens
            end_s = request.since_s + left * STEP_S
            self._at(end_s, self._end, request, request.since_s)

    def _take_row(self, request: _Request) -> None:
        """The engine preempts it itself: it continues in the next row."""
        request.part_tokens = self.generated(request)
        del self._running[request]
        self._waiting.insert(0, request)

    def _stopped(self, request: _Request) -> None:
        if request.state is not State.RUNNING:
            return
        self._leave_engine(request)
        self.queue.release(request)
        again = _Request(replace(request.ticket, has_begun=True, prompt_tokens=0))
        self._fill_in(again, request.callers, request.comes_again)
        again.output, again.came_s = request.output - request.tokens, request.came_s
        again.began_s = request.began_s
        self._enter(again)

    def _leave_engine(self, request: _Request) -> None:
        self._charge_one(request)
        request.part_tokens = self.generated(request)
        if request in self._running:
            del self._running[request]
        else:
            self._waiting.remove(request)
        self._start_next()

    def _see_first(self, request: _Request, since_s: float, uncached: int) -> None:
        if request not in self._running or request.since_s != since_s:
            return
        if not request.began_s:
            request.began_s = self.clock.now
            self.seen[request.ticket.tenant].ttfts_s.append(self.clock.now - request.came_s)
        if not request.part_tokens:
            self.queue.see_prompt(request, uncached)

    def refuse(self, request: _Request, error: RateLimited) -> None:
        seen = self.seen[request.ticket.tenant]
        seen.refused += 1
        if request.callers.returns:
            again = self._made(request.callers, request.comes_again)
            again.has_returned = True
            self._at(self.clock.now + error.retry_after_s, self._enter, again)
        elif request.comes_again:
            at = self.clock.now + request.callers.pause_s + 1
            self._at(at, self._come, request.callers, True)

    def _advance(self, time: float) -> None:
        self.clock.now = time

    def _at(self, time: float, call: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), call, arguments))

    def _pause(self, callers: Callers) -> float:
        return self.clock.now + self._random.expovariate(1 / callers.every_s)

    def _come_once(self, callers: Callers) -> None:
        self._come(callers, False)
        self._at(self._pause(callers), self._come_once, callers)

    def _come(self, callers: Callers, comes_again: bool) -> None:
        self._enter(self._made(callers, comes_again))

    def _made(self, callers: Callers, comes_again: bool) -> _Request:
        ticket = Ticket(
            queue=QUEUE,
            tenant=callers.tenant,
            weight=callers.weight,
            priority=callers.priority,
            prompt_tokens=self._random.randint(*callers.prompt),
            may_yield=callers.may_yield,
            engine_takes_priority=self._takes_priority,
        )
        request = _Request(ticket)
        self._fill_in(request, callers, comes_again)
        request.output = self._random.randint(*callers.output)
        return request

    def _fill_in(self, request: _Request, callers: Callers, comes_again: bool) -> None:
        request.callers, request.comes_again = callers, comes_again
        request.rows, request.has_returned, request.told = self, False, None
        request.came_s, request.began_s, request.since_s = self.clock.now, 0.0, 0.0
        request.part_tokens = 0

    def _enter(self, request: _Request) -> None:
        self.seen[request.ticket.tenant].returned += request.has_returned
        request.seen = self.grants
        try:
            self.queue.enter(request)
        except RateLimited as error:
            self.seen[request.ticket.tenant].refused_again += request.has_returned
            self.refuse(request, error)
        if request.state is State.WAITING and request.deadline < math.inf:
            self._at(request.deadline, self.queue.expire, request)

    def _end(self, request: _Request, since_s: float) -> None:
        if request not in self._running or request.since_s != since_s:
            return
        self._leave_engine(request)
        self.queue.release(request)
        self.seen[request.ticket.tenant].ended += 1
        if request.comes_again:
            self._at(self.clock.now + request.callers.pause_s, self._come, request.callers, True)

    def _charge(self) -> None:
        self._charge_all()
        self._at(self.clock.now + self._charge_s, self._charge)

    def _charge_all(self) -> None:
        for request in self._running:
            self._charge_one(request)
        self.queue.rearrange()

    def _charge_one(self, request: _Request) -> None:
        assert request.state is State.RUNNING
        tokens = self.generated(request)
        seen = self.seen[request.ticket.tenant]
        seen.service += 2 * (tokens - request.tokens)
        seen.tokens += tokens - request.tokens
        self.queue.charge(request, tokens)
