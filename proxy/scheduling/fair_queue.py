"""One queue: who runs, who waits, and who is refused. It does no I/O and starts no timers.

Whenever a stream waits, no row is free, and none that runs can yield to it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator

from triton_openai.proxy.domain.scheduling import QueueState, Standing, Ticket
from triton_openai.proxy.scheduling.classes import Classes
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.places import Places
from triton_openai.proxy.scheduling.refusals import Refusals
from triton_openai.proxy.scheduling.running import Running
from triton_openai.proxy.scheduling.service_rate import ServiceRate
from triton_openai.proxy.scheduling.stream import State, Stream
from triton_openai.proxy.scheduling.takeover import victim_for

OUTPUT_COST = 2  # of one token, in tokens of a prompt (VTC)

Clock = Callable[[], float]


class FairQueue:
    """capacity: how many streams may run; None without bound. Times are seconds of the clock."""

    def __init__(self, limits: QueueLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._classes = Classes()
        self._places = Places(limits)
        self._running = Running()
        self._rate = ServiceRate(clock())
        self._refusals = Refusals(limits, self._classes, self._places, self._rate)
        self._entered = 0
        self.capacity: int | None = None

    @property
    def waiting(self) -> int:
        return self._classes.waiting

    @property
    def running(self) -> int:
        return self._running.count

    def enter(self, stream: Stream) -> None:
        """The stream runs at once, or waits.

        Raises:
            RateLimited: it has no patience, or there is no place for it.
        """
        now = stream.entered_at = self._clock()
        self._entered += 1
        stream.number = -self._entered if stream.ticket.has_begun else self._entered
        if self._has_free_row():
            self._classes.begin(stream)
            self._begin(stream, now)
        elif self._running.can_yield_to(stream.ticket.priority):
            victim = self._running.choose_to_yield()
            self._classes.begin(stream)
            self._run_instead(stream, victim, now)
        elif (other := self._above_its_share(stream)) is not None:
            self._classes[stream.ticket.priority].take(stream, now)
            self._run_instead(stream, other, now)
        else:
            self._wait(stream, now)

    def leave(self, stream: Stream) -> None:
        """Its caller is gone. If it had begun to run just now, that costs nothing either."""
        if stream.state is State.WAITING:
            self._stop_waiting(stream)
        elif stream.state is State.RUNNING:
            self._refund(stream)
            self._end(stream)

    def expire(self, stream: Stream) -> None:
        """Its patience is over."""
        error = self._refusals.impatient(stream.ticket, self.capacity, self._clock())
        self._stop_waiting(stream)
        stream.refused(error)

    def release(self, stream: Stream) -> None:
        """It has ended, and is charged."""
        if not stream.is_yielding:
            self._rate.end(stream.tokens)
        self._end(stream)

    def charge(self, stream: Stream, tokens: int) -> None:
        """tokens: that the stream has generated. Free where nobody of its class waits."""
        now = self._clock()
        new, stream.tokens = max(tokens - stream.tokens, 0), max(tokens, stream.tokens)
        of_class = self._classes[stream.ticket.priority]
        if new and of_class.has_waited_since(stream.charged_at):
            of_class.charge(stream, OUTPUT_COST * new)
        stream.charged_at = now

    def see_prompt(self, stream: Stream, uncached_tokens: int) -> None:
        """Charges the true length in place of the estimate, if the prompt was charged."""
        if stream.prompt_charged is not None:
            of_class = self._classes[stream.ticket.priority]
            of_class.charge(stream, uncached_tokens - stream.prompt_charged)
            stream.prompt_charged = uncached_tokens

    def set_capacity(self, streams: int | None) -> None:
        self.capacity = streams
        self._places.set_most(self._limits.places(streams))
        self._fill(self._clock())

    def state(self, name: str, tenants: int) -> QueueState:
        """tenants: how many to list, those with the most streams; 0 looks at none."""
        found = self._classes.tenants() if tenants else {}
        shown = heapq.nlargest(tenants, found.values(), key=lambda one: one.running + one.waiting)
        return QueueState(
            queue=name,
            capacity=self.capacity,
            running=self.running,
            waiting=self.waiting,
            tenants=tuple(shown),
            tenants_in_all=len(found),
        )

    def standings(self) -> Iterator[None]:
        """Tells each stream that waits if its position has changed; one for each step, at most."""
        cost = OUTPUT_COST * self._rate.stream_tokens()
        place = 0
        for stream in self._classes.served_order(cost):
            if stream is not None and stream.state is State.WAITING:
                place += 1
                if stream.position != place:
                    stream.position = place
                    stream.moved(self._standing(place, self._clock()))
            yield

    def _standing(self, place: int, now: float) -> Standing:
        if not self.capacity:
            return Standing(place, None)
        return Standing(place, self._rate.wait_s(place, self.capacity, now))

    def _above_its_share(self, stream: Stream) -> Stream | None:
        """A stream of its class that makes room for it."""
        priority = stream.ticket.priority
        of_class = self._classes.get(priority)
        if not self._limits.fair_preemption or of_class is None:
            return None
        if self._classes.waits_above(priority):
            return None
        return victim_for(stream, of_class, self._running)

    def _run_instead(self, stream: Stream, victim: Stream, now: float) -> None:
        self._running.yields(victim)
        self._classes[victim.ticket.priority].yields(victim)
        stream.took_over = True
        self._begin(stream, now)
        victim.preempted()

    def _has_free_row(self) -> bool:
        running = self._running
        return self.capacity is None or running.count - running.yielding < self.capacity

    def _wait(self, stream: Stream, now: float) -> None:
        ticket = stream.ticket
        if ticket.has_begun:
            stream.deadline = math.inf
        else:
            stream.deadline = now + self._patience_s(ticket)
            if stream.deadline <= now:
                raise self._refusals.impatient(ticket, self.capacity, now)
            self._make_room(ticket, now)
            self._places.add(stream, now)
        stream.state = State.WAITING
        nth = 1 if ticket.has_begun else self._places.taken_by(ticket.tenant)
        self._classes.enter(stream)
        stream.position = self._classes.place_of(ticket, nth)
        stream.moved(self._standing(stream.position, now))

    def _patience_s(self, ticket: Ticket) -> float:
        longest_s = self._limits.longest_wait_s
        return longest_s if ticket.patience_s is None else min(ticket.patience_s, longest_s)

    def _make_room(self, ticket: Ticket, now: float) -> None:
        full = self._places.full(ticket.tenant, now)
        if full is None:
            return
        displaced = self._places.displaced_by(ticket, full)
        if displaced is None:
            raise self._refusals.full(ticket, full, self.capacity, now)
        error = self._refusals.displaced(displaced.ticket, full, self.capacity, now)
        self._stop_waiting(displaced)
        displaced.refused(error)

    def _stop_waiting(self, stream: Stream) -> None:
        self._classes.leave(stream, self._clock())
        self._leave_place(stream)
        stream.state = State.ENDED

    def _leave_place(self, stream: Stream) -> None:
        if not stream.ticket.has_begun:
            self._places.remove(stream)

    def _begin(self, stream: Stream, now: float) -> None:
        stream.state = State.RUNNING
        stream.charged_at = now
        self._running.add(stream)
        self._rate.running(self._running.count, now)
        stream.granted()

    def _end(self, stream: Stream) -> None:
        now = self._clock()
        stream.state = State.ENDED
        self._running.remove(stream)
        self._rate.running(self._running.count, now)
        self._classes.end(stream)
        self._fill(now)

    def _refund(self, stream: Stream) -> None:
        if stream.prompt_charged:
            self._classes[stream.ticket.priority].charge(stream, -stream.prompt_charged)

    def _fill(self, now: float) -> None:
        """Gives free rows to streams that wait."""
        while self._classes.waiting and self._has_free_row():
            stream = self._classes.take_first(now)
            self._leave_place(stream)
            self._begin(stream, now)
