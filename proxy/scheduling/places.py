"""The places in which streams may wait: bounded for each tenant, and for all together."""

from __future__ import annotations

from collections import OrderedDict, deque

from triton_openai.proxy.domain.scheduling import Ticket
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.stream import Stream


class TenantPlaces:
    """streams: by priority, in the order in which they came. promised: times at which places will
    be free of which refused callers were told.
    """

    __slots__ = ("promised", "streams", "taken")

    def __init__(self) -> None:
        self.streams: dict[int, OrderedDict[Stream, None]] = {}
        self.taken = 0
        self.promised: deque[float] = deque()

    def newest(self) -> Stream:
        """Of the lowest class."""
        return next(reversed(self.streams[min(self.streams)]))


class Places:
    """Streams that have begun take no place. most: how many there are.

    `_sizes` has the tenants by how many places they have, so that the one with the most is found
    at once.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._tenants: dict[str, TenantPlaces] = {}
        self._sizes: dict[int, OrderedDict[str, None]] = {}
        self._most = 0
        self.most = limits.waiting
        self.taken = 0

    def of(self, tenant: str) -> TenantPlaces | None:
        """None where the tenant has none."""
        return self._tenants.get(tenant)

    def taken_by(self, tenant: str) -> int:
        places = self._tenants.get(tenant)
        return 0 if places is None else places.taken

    def is_tenant_full(self, tenant: str) -> bool:
        return self.taken_by(tenant) >= self._limits.waiting_per_tenant

    def has_room(self, tenant: str) -> bool:
        return self.taken < self.most and not self.is_tenant_full(tenant)

    def displaced_by(self, ticket: Ticket) -> Stream | None:
        """The stream that gives its place to this one; None where it must be refused.

        The tenant with the most places gives one to a tenant that then still has no more than it.
        Else a stream takes the place of one of a lower class of its own tenant.
        """
        own = self._tenants.get(ticket.tenant)
        has_fewer = (own.taken if own is not None else 0) + 1 < self._most
        if has_fewer and not self.is_tenant_full(ticket.tenant):
            return self._tenants[next(reversed(self._sizes[self._most]))].newest()
        if own is not None and min(own.streams) < ticket.priority:
            return own.newest()
        return None

    def add(self, stream: Stream) -> None:
        ticket = stream.ticket
        places = self._tenants.get(ticket.tenant)
        if places is None:
            places = self._tenants[ticket.tenant] = TenantPlaces()
        places.streams.setdefault(ticket.priority, OrderedDict())[stream] = None
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
