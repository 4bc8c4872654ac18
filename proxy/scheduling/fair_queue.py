"""One queue: who runs, who waits, and who is refused. It does no I/O and starts no timers.

While a stream waits, the engine has as many as it should have. `rearrange` looks for those that can
yield to it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice

from proxy.domain.errors import ErrorCode, RateLimited
from proxy.domain.scheduling import QueueState, Standing, Ticket
from proxy.scheduling.places import Places
from proxy.scheduling.priority_class import Classes, victim_for
from proxy.scheduling.service_rate import ServiceRate
from proxy.scheduling.stream import State, Stream
from proxy.settings.streams import Scheduling

LOOKED_AT = 16  # streams of a class, the newest first
OUTPUT_COST = 2  # of one token, in tokens of a prompt (VTC)
PLACES_A_STREAM = 16  # that may run, if no setting says how many may wait

Clock = Callable[[], float]


class Refusal(str, Enum):
    """Why a stream got 429. FULL: no place. NO_WAIT: it does not wait. TIMEOUT: it waited as long
    as it may. DISPLACED: it waited, and a tenant with fewer streams took its place.
    """

    FULL = "full"
    NO_WAIT = "no_wait"
    TIMEOUT = "timeout"
    DISPLACED = "displaced"


class RefusedByQueue(RateLimited):
    def __init__(self, reason: Refusal, message: str, retry_after_s: float) -> None:
        super().__init__(
            f"{message} Try again in {max(retry_after_s, 1):.0f} s.",
            retry_after_s=retry_after_s,
            code=ErrorCode.QUEUE_FULL,
        )
        self.reason = reason


class Running:
    """The streams of one queue that run, and those among them that can make room.

    The engine runs as many as it has rows. The others, `spares`, wait in it for the next row."""

    def __init__(self) -> None:
        self.count = 0
        self.yielding = 0  # those of them that have to stop
        self.holding = 0  # those that have a row, and keep it
        self.spares: OrderedDict[Stream, None] = OrderedDict()
        self._priorities: list[int] = []  # with streams that may yield, ascending
        self._may_yield: dict[int, OrderedDict[Stream, None]] = {}

    @property
    def kept(self) -> int:
        return self.count - self.yielding

    def add(self, stream: Stream, *, has_row: bool) -> None:
        self.count += 1
        if has_row:
            self.holding += 1
        else:
            self.spares[stream] = None
        if stream.ticket.may_yield:
            priority = stream.ticket.priority
            if priority not in self._may_yield:
                insort(self._priorities, priority)
                self._may_yield[priority] = OrderedDict()
            self._may_yield[priority][stream] = None

    def get_row(self, stream: Stream) -> None:
        """A spare stream."""
        del self.spares[stream]
        self.holding += 1

    def remove(self, stream: Stream) -> None:
        self.count -= 1
        if stream.is_yielding:
            self.yielding -= 1
        else:
            self._drop(stream)

    def newest_below(self, priority: int, *, spare: bool = False) -> Stream | None:
        """The newest of the lowest class below this one: one that has a row, or a spare one."""
        for each in self._priorities[: bisect_left(self._priorities, priority)]:
            for stream in islice(reversed(self._may_yield[each]), LOOKED_AT):
                if (stream in self.spares) is spare and (spare or stream.can_yield):
                    return stream
        return None

    def yields(self, stream: Stream) -> None:
        """From now on its row counts as free."""
        self._drop(stream)
        stream.is_yielding = True
        self.yielding += 1

    def _drop(self, stream: Stream) -> None:
        if stream in self.spares:
            del self.spares[stream]
        else:
            self.holding -= 1
        if not stream.ticket.may_yield:
            return
        priority = stream.ticket.priority
        of_class = self._may_yield[priority]
        del of_class[stream]
        if not of_class:
            del self._may_yield[priority]
            del self._priorities[bisect_left(self._priorities, priority)]


class FairQueue:
    """capacity: how many streams may run; None without bound; 0 while no endpoint serves the model,
    when streams are held for other times and within other bounds. rows: how many of these the
    engine runs at once, while the others wait in it. Times are seconds of the clock.
    """

    def __init__(self, settings: Scheduling, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._classes = Classes()
        self._places = Places()
        self._running = Running()
        self._rate = ServiceRate(clock())
        self._entered = 0
        self._woke_at = -math.inf
        self.capacity: int | None = None
        self.rows: int | None = None

    @property
    def waiting(self) -> int:
        return self._classes.waiting

    @property
    def running(self) -> int:
        return self._running.count

    def enter(self, stream: Stream) -> None:
        """The stream runs at once, or waits.

        Raises:
            RefusedByQueue: it has no patience, or there is no place for it.
        """
        now = stream.entered_at = self._clock()
        self._entered += 1
        stream.number = -self._entered if stream.ticket.has_begun else self._entered
        if self.capacity == 0:
            self._wait(stream, now)
        elif self._has_free_row():
            self._classes.begin(stream)
            self._begin(stream, now, has_row=True)
        elif (victim := self._victim_for(stream)) is not None:
            self._classes.enter(stream)
            self._run_instead(stream, victim, now)
        elif self._has_place():
            self._classes.begin(stream)
            self._begin(stream, now, has_row=False)
        elif (spare := self._running.newest_below(stream.ticket.priority, spare=True)) is not None:
            self._classes.enter(stream)
            self._run_instead(stream, spare, now)
        else:
            self._wait(stream, now)

    def leave(self, stream: Stream) -> None:
        """Its caller is gone. If it had begun to run just now, that costs nothing either."""
        if stream.state is State.WAITING:
            self._stop_waiting(stream)
        elif stream.state is State.RUNNING:
            self._refund(stream)
            self._end(stream)

    def expire(self, stream: Stream) -> float:
        """Refuses a stream that still waits: its patience is over. Returns for how long it may wait
        on, where endpoints came or went meanwhile.
        """
        if stream.state is not State.WAITING:
            return 0.0
        now, settings = self._clock(), self._settings
        if stream.ticket.patience_s is None:
            until = self._woke_at + settings.queue_timeout_s
            if self.capacity == 0:
                until = stream.entered_at + settings.hold_timeout_s
            stream.deadline = max(stream.deadline, until)
        if stream.deadline > now:
            return stream.deadline - now
        error = self._impatient(stream.ticket, now)
        self._stop_waiting(stream)
        stream.refused(error)
        return 0.0

    def release(self, stream: Stream) -> None:
        """It has ended, and is charged."""
        if not stream.is_yielding:
            self._rate.end(stream.tokens)
            of_class = self._classes[stream.ticket.priority]
            of_class.shares[stream.ticket.tenant].rate.end(stream.tokens)
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
        """It has its first token, and so a row. Charges the true length in place of the estimate,
        if the prompt was charged.
        """
        stream.start_tokens = uncached_tokens
        if stream in self._running.spares:
            self._get_row(stream)
        if stream.prompt_charged:
            of_class = self._classes[stream.ticket.priority]
            of_class.charge(stream, uncached_tokens - stream.prompt_charged)
            stream.prompt_charged = uncached_tokens

    def rearrange(self) -> None:
        """Looks whether streams that wait, here or in the engine, can take a row over now. To be
        called after streams were charged.
        """
        now = self._clock()
        while (stream := self._classes.next) is not None:
            victim = self._victim_for(stream)
            if victim is None:
                break
            self._leave_place(stream)
            self._run_instead(stream, victim, now)
        for spare in tuple(self._running.spares):
            if spare.ticket.may_yield and self._victim_for(spare) is not None:
                self._stop(spare)  # it comes back at once, and takes the row over
                break

    def set_capacity(self, streams: int | None, spare: int = 0) -> None:
        """spare: how many of the streams wait in the engine."""
        settings = self._settings
        if self.capacity == 0 != streams:
            self._woke_at = self._clock()
        self.capacity = streams
        self.rows = None if streams is None else max(streams - spare, min(streams, 1))
        places = settings.queue_length
        self._places.most = PLACES_A_STREAM * (streams or 0) if places is None else places
        if settings.hold_timeout_s:  # those that were held keep their places
            self._places.most = max(self._places.most, settings.held_requests)
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
        place = above = 0
        priority: int | None = None
        nth: Counter[tuple[int, str]] = Counter()
        for stream in self._classes.served_order(cost):
            if stream is not None and stream.state is State.WAITING:
                if stream.ticket.priority != priority:
                    priority, above = stream.ticket.priority, place
                place += 1
                of_tenant = stream.ticket.priority, stream.ticket.tenant
                nth[of_tenant] += 1
                if stream.position != place:
                    stream.position = place
                    stream.moved(self._standing(stream, above, nth[of_tenant], self._clock()))
            yield

    def _standing(self, stream: Stream, above: int, nth: int, now: float) -> Standing:
        """above: streams of higher classes that wait. nth: of those of its tenant in its class.

        Its position counts those that will probably come and be served before it, too.
        """
        place = stream.position
        if not self.capacity:
            return Standing(place, None)
        of_class = self._classes[stream.ticket.priority]
        share = of_class.shares[stream.ticket.tenant]
        rows = of_class.expected_rows(share, self.rows or self.capacity)
        stream_s = share.rate.stream_s(now, self._rate.stream_s(now))
        next_s = self._rate.wait_s(1, self.capacity, now)
        wait_s = next_s * above + nth * stream_s / rows
        return Standing(max(place, round(wait_s / next_s)), wait_s)

    def _victim_for(self, stream: Stream) -> Stream | None:
        """The stream that makes room for this one, if it is the next of its tenant."""
        ticket = stream.ticket
        if self.capacity == 0:
            return None
        victim = self._running.newest_below(ticket.priority)
        if victim is not None:
            return victim
        of_class = self._classes.get(ticket.priority)
        if not self._settings.fair_preemption or of_class is None:
            return None
        share = of_class.shares.get(ticket.tenant)
        is_next = share is None or not share.waiting or ticket.has_begun or share.first is stream
        if not is_next or self._classes.waits_above(ticket.priority):
            return None
        return victim_for(ticket, of_class)

    def _run_instead(self, stream: Stream, victim: Stream, now: float) -> None:
        """stream: one that has entered its class."""
        takes_row = victim not in self._running.spares
        stopped = [victim]
        if takes_row and not stream.ticket.engine_takes_priority:
            stopped += [each for each in self._running.spares if each.ticket.may_yield]
        for each in stopped:
            self._yields(each)
        self._classes.take(stream, now)
        stream.took_over = takes_row
        self._begin(stream, now, has_row=takes_row)
        for each in stopped:
            each.preempted()

    def _stop(self, stream: Stream) -> None:
        self._yields(stream)
        stream.preempted()

    def _yields(self, stream: Stream) -> None:
        self._running.yields(stream)
        self._classes[stream.ticket.priority].let_go(stream, self._clock())

    def _has_free_row(self) -> bool:
        return self._has_place() and (self.rows is None or self._running.holding < self.rows)

    def _has_place(self) -> bool:
        return self.capacity is None or self._running.kept < self.capacity

    def _wait(self, stream: Stream, now: float) -> None:
        ticket = stream.ticket
        if ticket.has_begun:
            stream.deadline = math.inf
        else:
            stream.deadline = now + self._patience_s(ticket)
            if stream.deadline <= now:
                raise self._impatient(ticket, now)
            self._make_room(ticket, now)
            self._places.add(stream, now)
        stream.state = State.WAITING
        self._classes.enter(stream)
        own = self._classes[ticket.priority].shares[ticket.tenant].waiting
        nth = 1 if ticket.has_begun else len(own)
        stream.position = self._classes.place_of(ticket, nth)
        above = self._classes.waiting_above(ticket.priority)
        stream.moved(self._standing(stream, above, nth, now))

    def _patience_s(self, ticket: Ticket) -> float:
        settings = self._settings
        longest_s = settings.hold_timeout_s if self.capacity == 0 else settings.queue_timeout_s
        return longest_s if ticket.patience_s is None else min(ticket.patience_s, longest_s)

    def _make_room(self, ticket: Ticket, now: float) -> None:
        displaced: list[Stream] | None = []
        if self.capacity == 0:
            most_bytes = int(self._settings.held_mb * 1_000_000)
            displaced = self._places.displaced_for_bytes(ticket, most_bytes)
        if displaced == [] and not self._places.has_place(ticket.tenant, now):
            one = self._places.displaced_by(ticket)
            displaced = None if one is None else [one]
        if displaced is None:
            raise self._no_place(ticket, now)
        for each in displaced:
            error = self._displaced(each.ticket, now)
            self._stop_waiting(each)
            each.refused(error)

    def _stop_waiting(self, stream: Stream) -> None:
        self._classes.leave(stream, self._clock())
        self._leave_place(stream)
        stream.state = State.ENDED

    def _leave_place(self, stream: Stream) -> None:
        if not stream.ticket.has_begun:
            self._places.remove(stream)

    def _begin(self, stream: Stream, now: float, *, has_row: bool) -> None:
        stream.state = State.RUNNING
        stream.charged_at = now
        self._running.add(stream, has_row=has_row)
        if has_row:
            self._classes[stream.ticket.priority].hold(stream, now)
        self._rate.running(self._running.count, now)
        stream.granted()

    def _get_row(self, spare: Stream) -> None:
        self._running.get_row(spare)
        self._classes[spare.ticket.priority].hold(spare, self._clock())

    def _end(self, stream: Stream) -> None:
        now = self._clock()
        stream.state = State.ENDED
        self._running.remove(stream)
        self._rate.running(self._running.count, now)
        self._classes.end(stream, now)
        self._fill(now)

    def _refund(self, stream: Stream) -> None:
        if stream.prompt_charged:
            self._classes[stream.ticket.priority].charge(stream, -stream.prompt_charged)

    def _fill(self, now: float) -> None:
        """Gives free rows to streams that wait: first in the engine, then here."""
        running = self._running
        while running.spares and (self.rows is None or running.holding < self.rows):
            self._get_row(next(iter(running.spares)))
        while self._has_place() and (stream := self._classes.next) is not None:
            self._leave_place(stream)
            has_row = self._has_free_row()
            self._classes.take(stream, now)
            self._begin(stream, now, has_row=has_row)

    def _no_place(self, ticket: Ticket, now: float) -> RefusedByQueue:
        message = (
            f"The queue of this model has room for {self._places.most} requests, and all places "
            "are taken."
        )
        if self.capacity == 0:
            message = "No server of this model is ready, and no more requests can wait for one."
        return RefusedByQueue(Refusal.FULL, message, self._place_s(ticket, now))

    def _displaced(self, ticket: Ticket, now: float) -> RefusedByQueue:
        """ticket: of a stream that waited, and had to give its place to another one."""
        return RefusedByQueue(
            Refusal.DISPLACED,
            "The queue of this model is full, and this request gave its place to one of a tenant "
            "with fewer requests in it, or of a higher priority.",
            self._place_s(ticket, now),
        )

    def _impatient(self, ticket: Ticket, now: float) -> RefusedByQueue:
        """It could not run within the time that it may wait: it may run at once when those that
        wait now, and one more, have ended.
        """
        wait_s = self._rate.surely_s(self._classes.waiting + 1, self.capacity or 1, now)
        lacks, wanted = "No row of this model is free", "a row"
        if self.capacity == 0:
            lacks, wanted = "No server of this model is ready", "a server"
        if ticket.patience_s is not None and ticket.patience_s <= 0:
            message = f"{lacks}, and the request may not wait."
            return RefusedByQueue(Refusal.NO_WAIT, message, wait_s)
        message = f"The request waited for {wanted} of this model as long as it may."
        return RefusedByQueue(Refusal.TIMEOUT, message, wait_s)

    def _place_s(self, ticket: Ticket, now: float) -> float:
        """Seconds until there is a place for it, after those that were promised already.

        A place becomes free when a stream of the tenant begins to run.
        """
        begun = self._places.promised(ticket.tenant, now) + 1
        ended = self._classes.place_of(ticket, begun, others_return=True)
        wait_s = self._rate.surely_s(ended, self.capacity or 1, now)
        return self._places.promise(ticket.tenant, now + wait_s) - now
