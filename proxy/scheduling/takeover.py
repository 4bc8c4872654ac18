"""Preemption within a class: a tenant takes a row of one that is ahead of it.

Used by `fair_queue`.
"""

from __future__ import annotations

from itertools import islice

from proxy.domain.scheduling import Ticket
from proxy.scheduling.priority_class import PriorityClass
from proxy.scheduling.service_order import SLICE
from proxy.scheduling.stream import Stream

LOOKED_AT = 16  # streams of a tenant, the newest first


def victim_for(ticket: Ticket, of_class: PriorityClass) -> Stream | None:
    """The stream that makes room for the next one of a tenant; None if that has to wait.

    A row belongs to the tenant that has less load without it. The slice keeps two tenants with the
    same load from taking it from each other at each token; a tenant that has just come need not
    wait for it, unless the other one has just come, too.
    """
    load, a_slice = of_class.load_of(ticket), SLICE / ticket.weight
    own = of_class.shares.get(ticket.tenant)
    has_just_come = own is None or own.has_just_come
    ahead = [
        each
        for each in of_class.holders
        if each is not own
        and each.load_without_a_row
        >= load + (0 if has_just_come and not each.has_just_come else a_slice)
    ]
    ahead.sort(key=lambda one: (one.load_without_a_row, one.newest.number), reverse=True)
    for each in ahead:
        for stream in islice(reversed(each.holding), LOOKED_AT):
            if stream.can_yield:
                return stream
    return None
