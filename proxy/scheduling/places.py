"""The places in which streams may wait: bounded for all tenants together."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict

from proxy.domain.scheduling import Ticket
from proxy.scheduling.stream import Stream

GRACE_S = 3.0  # `Retry-After` is rounded up to a second, and a connection takes its time
KEPT = 4  # promises, for each place
EARLY_S = 0.05  # clients round, too


class Promises:
    """The times at which refused callers were asked to return, ascending."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    @property
    def latest(self) -> float:
        return self._times[-1] if self._times else -math.inf

    def is_due(self, now: float) -> bool:
        return bool(self._times) and self._times[0] <= now + EARLY_S

    def add(self, time: float, most: int) -> None:
        if len(self._times) < most:
            insort(self._times, time)

    def keep(self, now: float) -> None:
        """A stream has taken a place; if one was promised for this time, it is that one."""
        if self.is_due(now):
            del self._times[0]

    def lapse(self, now: float) -> None:
        """Forgets callers that did not return in time."""
        if self._times and self._times[0] + GRACE_S < now:
            del self._times[: bisect_left(self._times, now - GRACE_S)]


class TenantPlaces:
    """streams: by priority, in the order in which they came. bytes: of their prompts."""

    __slots__ = ("bytes", "promises", "streams", "taken")

    def __init__(self) -> None:
        self.streams: dict[int, OrderedDict[Stream, None]] = {}
        self.taken = self.bytes = 0
        self.promises = Promises()

    def newest(self) -> Stream:
        """The newest stream of the lowest class."""
        return next(reversed(self.streams[min(self.streams)]))


class Places:
    """Streams that have begun take no place.

    Places are kept for callers that were refused, for the time at which they were asked to return:
    without it, callers that never waited would take them. At most half of the places are kept, so
    callers that do not return cannot empty the queue.

    most: places. taken, bytes: by all tenants. `_sizes` has the tenants by how many places they
    have, so that the one with the most is found at once.
    """

    def __init__(self) -> None:
        self.most = 0
        self.taken = self.bytes = 0
        self._tenants: dict[str, TenantPlaces] = {}
        self._sizes: dict[int, OrderedDict[str, None]] = {}
        self._largest = 0  # places of the tenant with the most
        self._promises = Promises()

    def has_place(self, tenant: str, now: float) -> bool:
        """Whether a stream that comes now gets a place. The tenant with the most does not get
        those that are kept.
        """
        self._promises.lapse(now)
        free = self.most - self.taken
        if free <= 0:
            return False
        return (
            self._has_fewer(tenant)
            or self._promises.is_due(now)
            or free > min(len(self._promises), self.most // 2)
        )

    def displaced_by(self, ticket: Ticket) -> Stream | None:
        """The stream that gives its place to this one; None if this one must be refused.

        The tenant with the most places gives one to a tenant that then still has no more than it.
        Else a stream takes the place of one of a lower class of its own tenant.
        """
        if self._has_fewer(ticket.tenant):
            return self._tenants[next(reversed(self._sizes[self._largest]))].newest()
        own = self._tenants.get(ticket.tenant)
        if own is not None and min(own.streams) < ticket.priority:
            return own.newest()
        return None

    def displaced_for_bytes(self, ticket: Ticket, most: int) -> list[Stream] | None:
        """The streams that give their places to this one, so that all prompts have at most so many
        bytes: the newest of the tenant with the most, which then still has no fewer than this
        one's. None if this one must be refused. Looks at every tenant only where there is no room.
        """
        excess = self.bytes + ticket.prompt_bytes - most
        if excess <= 0:
            return []
        heaviest = max(self._tenants.values(), key=lambda one: one.bytes, default=None)
        own = self._tenants.get(ticket.tenant)
        needed = ticket.prompt_bytes + (0 if own is None else own.bytes)
        if heaviest is None or heaviest is own or heaviest.bytes - excess < needed:
            return None
        found: list[Stream] = []
        for priority in sorted(heaviest.streams):
            for stream in reversed(heaviest.streams[priority]):
                if excess <= 0:
                    return found
                found.append(stream)
                excess -= stream.ticket.prompt_bytes
        return found

    def promised(self, tenant: str, now: float) -> int:
        """How many of the tenant's streams were asked to return, and have not yet."""
        places = self._tenants.get(tenant)
        if places is None:
            return 0
        places.promises.lapse(now)
        return len(places.promises)

    def promise(self, tenant: str, time: float) -> float:
        """When a refused stream shall return: not before those that were refused earlier."""
        if (places := self._tenants.get(tenant)) is not None:
            time = max(time, places.promises.latest)
            places.promises.add(time, KEPT * self.most)
        self._promises.add(time, KEPT * self.most)
        return time

    def add(self, stream: Stream, now: float) -> None:
        ticket = stream.ticket
        places = self._tenants.setdefault(ticket.tenant, TenantPlaces())
        places.streams.setdefault(ticket.priority, OrderedDict())[stream] = None
        places.promises.keep(now)
        self._promises.keep(now)
        self._resize(ticket.tenant, places, 1, ticket.prompt_bytes)

    def remove(self, stream: Stream) -> None:
        ticket = stream.ticket
        places = self._tenants[ticket.tenant]
        of_class = places.streams[ticket.priority]
        del of_class[stream]
        if not of_class:
            del places.streams[ticket.priority]
        self._resize(ticket.tenant, places, -1, -ticket.prompt_bytes)
        if not places.taken:
            del self._tenants[ticket.tenant]

    def _has_fewer(self, tenant: str) -> bool:
        """Whether the tenant, with one place more, has fewer than the one with the most."""
        places = self._tenants.get(tenant)
        return (0 if places is None else places.taken) + 1 < self._largest

    def _resize(self, tenant: str, places: TenantPlaces, by: int, prompt_bytes: int) -> None:
        places.bytes += prompt_bytes
        self.bytes += prompt_bytes
        if places.taken:
            same = self._sizes[places.taken]
            del same[tenant]
            if not same:
                del self._sizes[places.taken]
        places.taken += by
        self.taken += by
        if places.taken:
            self._sizes.setdefault(places.taken, OrderedDict())[tenant] = None
        if places.taken > self._largest or self._largest not in self._sizes:
            self._largest = places.taken  # the one with the most has changed by one
