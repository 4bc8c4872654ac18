"""An engine's rows and its callers on a simulated clock: hours of load in seconds of CPU."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tests.doubles.queued_stream import Clock, QueuedStream
from triton_openai.proxy.domain.errors import RateLimited
from triton_openai.proxy.domain.scheduling import Ticket
from triton_openai.proxy.scheduling.fair_queues import FairQueues
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.stream import State

STEP_S = 0.025  # of all rows: each gets one token
PREFILL_TOKENS_S = 8_000
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


@dataclass
class Seen:
    """Of one tenant. service: by time, of streams that run. waits_s: until granted. ttfts_s: until
    the first token. passed: streams of others that were granted a row while one waited, by stream.
    """

    service: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    refused: int = 0  # or waited in vain
    returned: int = 0
    refused_again: int = 0


class _Request(QueuedStream):
    __slots__ = ("began_s", "callers", "comes_again", "has_returned", "output", "rows", "seen")

    def granted(self) -> None:
        self.rows.began(self)

    def refused(self, error: RateLimited) -> None:
        self.rows.refuse(self, error)


class SimulatedRows:
    """charge_s: how often running streams are charged."""

    def __init__(self, rows: int, limits: QueueLimits, *, charge_s: float = 0.25) -> None:
        self.clock = Clock()
        self.queues = FairQueues(limits, self.clock)
        self.queues[QUEUE].set_capacity(rows)
        self.queue = self.queues[QUEUE]
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.refusals_s: list[float] = []
        self.grants = 0
        self.preempted: list[_Request] = []
        self._random = random.Random(1)
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = count()
        self._running: dict[_Request, None] = {}
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
        prefill_s = request.ticket.prompt_tokens / PREFILL_TOKENS_S
        request.began_s = now + prefill_s
        seen.waits_s.append(now - request.entered_at)
        seen.ttfts_s.append(now - request.entered_at + prefill_s + STEP_S)
        seen.passed.append(self.grants - request.seen)
        seen.service += request.ticket.prompt_tokens
        self.grants += 1
        self._running[request] = None
        self._at(request.began_s + request.output * STEP_S, self._end, request)

    def refuse(self, request: _Request, error: RateLimited) -> None:
        seen = self.seen[request.ticket.tenant]
        seen.refused += 1
        self.refusals_s.append(error.retry_after_s)
        if request.callers.returns:
            again = self._made(request.callers, request.comes_again)
            again.has_returned = True
            self._at(self.clock.now + error.retry_after_s, self._enter, again)
        elif request.comes_again:
            at = self.clock.now + request.callers.pause_s + 1
            self._at(at, self._come, request.callers, True)

    def _advance(self, time: float) -> None:
        while (deadline := self.queues.deadline()) is not None and deadline <= time:
            self.clock.now = deadline
            self.queues.expire()
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
        )
        request = _Request(ticket)
        request.callers, request.comes_again = callers, comes_again
        request.output = self._random.randint(*callers.output)
        request.rows, request.has_returned = self, False
        return request

    def _enter(self, request: _Request) -> None:
        self.seen[request.ticket.tenant].returned += request.has_returned
        request.seen = self.grants
        try:
            self.queues.enter(request)
        except RateLimited as error:
            self.seen[request.ticket.tenant].refused_again += request.has_returned
            self.refuse(request, error)

    def _end(self, request: _Request) -> None:
        self._charge_one(request)
        del self._running[request]
        self.queue.release(request)
        if request.comes_again:
            self._at(self.clock.now + request.callers.pause_s, self._come, request.callers, True)

    def _charge(self) -> None:
        self._charge_all()
        self._at(self.clock.now + self._charge_s, self._charge)

    def _charge_all(self) -> None:
        for request in self._running:
            self._charge_one(request)

    def _charge_one(self, request: _Request) -> None:
        assert request.state is State.RUNNING
        tokens = round(max(self.clock.now - request.began_s, 0) / STEP_S)
        tokens = min(tokens, request.output)
        self.seen[request.ticket.tenant].service += 2 * (tokens - request.tokens)
        self.queue.charge(request, tokens)
