"""The places in which streams may wait: bounded for each tenant, and for all together."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto

from proxy.domain.scheduling import Ticket
from proxy.scheduling.stream import Stream
from proxy.settings.requests import Scheduling

WAITING_A_STREAM = 16
MOST_WAITING = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How many streams may wait in one queue, and for how long. Streams that have begun are not
    counted and never refused.

    waiting: of all tenants together. waiting_a_stream: in its place, so many for each stream that
    the queue may run. waiting_per_tenant: of one tenant, in all classes together.
    fair_preemption: a tenant below its share of the rows may take one of a tenant above it.
    longest_wait_s: of a stream without a `patience_s`, and the most that `patience_s` can ask for.

    Raises:
        ValueError: a limit is negative, or the longest wait is not finite.
    """

    waiting: int = 2_000
    waiting_a_stream: int | None = None
    waiting_per_tenant: int = 500
    longest_wait_s: float = 60.0
    fair_preemption: bool = False

    def __post_init__(self) -> None:
        for name in ("waiting", "waiting_per_tenant"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if not 0 <= self.longest_wait_s < math.inf:
            raise ValueError(f"longest_wait_s is {self.longest_wait_s}: it must be finite, from 0")

    @classmethod
    def of(cls, settings: Scheduling) -> QueueLimits:
        waiting = settings.queue_length
        return cls(
            waiting=MOST_WAITING if waiting is None else waiting,
            waiting_a_stream=WAITING_A_STREAM if waiting is None else None,
            waiting_per_tenant=MOST_WAITING,
            longest_wait_s=settings.queue_timeout_s,
            fair_preemption=settings.fair_preemption,
        )

    def places(self, capacity: int | None) -> int:
        """Of a queue that may run so many streams."""
        if self.waiting_a_stream is None or capacity is None:
            return self.waiting
        return self.waiting_a_stream * capacity


GRACE_S = 3.0  # `Retry-After` is rounded up to a second, and a connection takes its time
KEPT = 4  # promises, for each place
EARLY_S = 0.05  # clients round, too


class Promises:
    """Keeps places for callers that were refused, for the time at which they were told to return.
    Without it, callers that never waited would take the places of those that return on time.

    limit: of places. Half of them are kept for callers that return, at most: callers that do not
    return cannot empty the queue.
    """

    __slots__ = ("_times", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: list[float] = []

    def has_place(self, taken: int, now: float) -> bool:
        """Whether there is a place for a stream that comes now."""
        times = self._times
        if times and times[0] + GRACE_S < now:
            del times[: bisect_left(times, now - GRACE_S)]
        free = self.limit - taken
        return free > 0 and (self._is_due(now) or free > min(len(times), self.limit // 2))

    def keep(self, now: float) -> None:
        """A stream has taken a place; if one was promised for this time, it is that one."""
        if self._is_due(now):
            del self._times[0]

    def missing(self, taken: int) -> int:
        """How many places must become free, until there is one for which nobody was told."""
        return max(len(self._times) + 1 - (self.limit - taken), 1)

    def latest(self) -> float:
        return self._times[-1] if self._times else -math.inf

    def add(self, time: float) -> None:
        if len(self._times) < KEPT * self.limit:
            insort(self._times, time)

    def _is_due(self, now: float) -> bool:
        return bool(self._times) and self._times[0] <= now + EARLY_S


class TenantPlaces:
    """streams: by priority, in the order in which they came."""

    __slots__ = ("promises", "streams", "taken")

    def __init__(self, limit: int) -> None:
        self.streams: dict[int, OrderedDict[Stream, None]] = {}
        self.taken = 0
        self.promises = Promises(limit)

    def newest(self) -> Stream:
        """Of the lowest class."""
        return next(reversed(self.streams[min(self.streams)]))


class Full(Enum):
    TENANT = auto()
    ALL = auto()


class Places:
    """Streams that have begun take no place. taken: by all tenants.

    `_sizes` has the tenants by how many places they have, so that the one with the most is found
    at once.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._tenants: dict[str, TenantPlaces] = {}
        self._sizes: dict[int, OrderedDict[str, None]] = {}
        self._most = 0
        self._promises = Promises(limits.waiting)
        self.taken = 0

    @property
    def most(self) -> int:
        return self._promises.limit

    def set_most(self, most: int) -> None:
        """How many places there are from now on. Streams that wait keep theirs."""
        self._promises.limit = most

    def taken_by(self, tenant: str) -> int:
        places = self._tenants.get(tenant)
        return 0 if places is None else places.taken

    def full(self, tenant: str, now: float) -> Full | None:
        """Whose places are all taken, or kept for others; None where there is one."""
        places = self._tenants.get(tenant)
        if places is None:
            if not self._limits.waiting_per_tenant:
                return Full.TENANT
        elif not places.promises.has_place(places.taken, now):
            return Full.TENANT
        if self._has_fewer(tenant) and self.taken < self.most:
            return None
        return None if self._promises.has_place(self.taken, now) else Full.ALL

    def displaced_by(self, ticket: Ticket, full: Full) -> Stream | None:
        """The stream that gives its place to this one; None where it must be refused.

        The tenant with the most places gives one to a tenant that then still has no more than it.
        Else a stream takes the place of one of a lower class of its own tenant.
        """
        if full is Full.ALL and self._has_fewer(ticket.tenant):
            return self._tenants[next(reversed(self._sizes[self._most]))].newest()
        own = self._tenants.get(ticket.tenant)
        if own is not None and min(own.streams) < ticket.priority:
            return own.newest()
        return None

    def missing(self, tenant: str, full: Full) -> int:
        """How many of the tenant's streams must begin to run, until there is a place for one that
        is refused now. Where the places of all are taken, others take what they leave.
        """
        places = self._tenants.get(tenant)
        if places is None:
            return 1
        taken = places.promises.limit if full is Full.ALL else places.taken
        return places.promises.missing(taken)

    def promise(self, tenant: str, full: Full, time: float) -> float:
        """When it shall return: not before those that were refused earlier."""
        if (places := self._tenants.get(tenant)) is not None:
            time = max(time, places.promises.latest())
            places.promises.add(time)
        if full is Full.ALL:
            self._promises.add(time)
        return time

    def add(self, stream: Stream, now: float) -> None:
        ticket = stream.ticket
        places = self._tenants.get(ticket.tenant)
        if places is None:
            places = TenantPlaces(self._limits.waiting_per_tenant)
            self._tenants[ticket.tenant] = places
        places.streams.setdefault(ticket.priority, OrderedDict())[stream] = None
        places.promises.keep(now)
        self._promises.keep(now)
        self._resize(ticket.tenant, places, 1)

    def remove(self, stream: Stream) -> None:
        ticket = stream.ticket
        places = self._tenants[ticket.tenant]
        of_class = places.streams[ticket.priority]
        del of_class[stream]
        if not of_class:
            del places.streams[ticket.priority]
        self._resize(ticket.tenant, places, -1)
        if not places.taken:
            del self._tenants[ticket.tenant]

    def _has_fewer(self, tenant: str) -> bool:
        """Than the one with the most, with one more."""
        return self.taken_by(tenant) + 1 < self._most

    def _resize(self, tenant: str, places: TenantPlaces, by: int) -> None:
        if places.taken:
            same = self._sizes[places.taken]
            del same[tenant]
            if not same:
                del self._sizes[places.taken]
        places.taken += by
        self.taken += by
        if places.taken:
            self._sizes.setdefault(places.taken, OrderedDict())[tenant] = None
        if places.taken > self._most or self._most not in self._sizes:
            self._most = places.taken  # the one with the most has changed by one
