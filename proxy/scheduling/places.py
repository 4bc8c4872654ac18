"""The places in which streams may wait: bounded for each tenant, and for all together."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto

from proxy.domain.scheduling import Ticket
from proxy.scheduling.limits import QueueLimits
from proxy.scheduling.promises import Promises
from proxy.scheduling.stream import Stream


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
