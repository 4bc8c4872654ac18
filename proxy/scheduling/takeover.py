"""Preemption within a class: a tenant below its share of the rows takes one of a tenant above it.

Used by `fair_queue`.
"""

from __future__ import annotations

from itertools import islice

from triton_openai.proxy.scheduling.priority_class import PriorityClass
from triton_openai.proxy.scheduling.running import Running
from triton_openai.proxy.scheduling.service_order import Share
from triton_openai.proxy.scheduling.stream import Stream

LOOKED_AT = 16  # streams of a class, the newest first


def victim_for(stream: Stream, of_class: PriorityClass, running: Running) -> Stream | None:
    """The stream that makes room for this one, which has just come; None if it has to wait.

    It is the newest of a tenant that keeps its share of the rows without it. The tenant of
    `stream` has no other that waits, it is its turn, and it has no more than its share with it. So
    none of both can take the row back.
    """
    ticket = stream.ticket
    share = of_class.shares.get(ticket.tenant)
    if ticket.has_begun or (share is not None and not _is_next(share, of_class)):
        return None
    weight = of_class.active_weight
    if share is None or share.is_idle:
        weight += ticket.weight
    rows_a_weight = (of_class.running - of_class.yielding) / weight
    held = 0 if share is None else share.rows
    if held + 1 > rows_a_weight * ticket.weight:
        return None
    for each in islice(running.newest(ticket.priority), LOOKED_AT):
        other = of_class.shares[each.ticket.tenant]
        if other is not share and other.rows - 1 >= rows_a_weight * other.weight:
            return each
    return None


def _is_next(share: Share, of_class: PriorityClass) -> bool:
    return not share.waiting and share.counter <= of_class.least()
