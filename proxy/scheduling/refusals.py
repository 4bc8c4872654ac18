"""The errors of streams that are refused, and when their callers should come back."""

from __future__ import annotations

from proxy.domain.errors import ErrorCode, RateLimited
from proxy.domain.scheduling import Ticket
from proxy.scheduling.classes import Classes
from proxy.scheduling.limits import QueueLimits
from proxy.scheduling.places import Full, Places
from proxy.scheduling.service_rate import ServiceRate


class Refusals:
    """Of one queue. capacity: of the queue at the time; None without bound."""

    def __init__(
        self, limits: QueueLimits, classes: Classes, places: Places, rate: ServiceRate
    ) -> None:
        self._limits = limits
        self._classes = classes
        self._places = places
        self._rate = rate

    def full(self, ticket: Ticket, full: Full, capacity: int | None, now: float) -> RateLimited:
        """There is no place for it."""
        limits = self._limits
        if full is Full.TENANT:
            most = f"{limits.waiting_per_tenant} requests of your organization"
        else:
            most = f"{self._places.most} requests"
        return _refusal(
            f"The queue of this model has room for {most}, and all places are taken.",
            self._place_s(ticket, full, capacity, now),
        )

    def displaced(
        self, ticket: Ticket, full: Full, capacity: int | None, now: float
    ) -> RateLimited:
        """It waited, and had to give its place to another one."""
        return _refusal(
            "The queue of this model is full, and this request gave its place to one of a tenant "
            "with fewer requests in it, or of a higher priority.",
            self._place_s(ticket, full, capacity, now),
        )

    def impatient(self, ticket: Ticket, capacity: int | None, now: float) -> RateLimited:
        """It could not run within the time that it may wait: it may run at once when those that
        wait now, and one more, have ended.
        """
        wait_s = self._rate.surely_s(self._classes.waiting + 1, capacity or 1, now)
        if ticket.patience_s is not None and ticket.patience_s <= 0:
            return _refusal("No row of this model is free, and the request may not wait.", wait_s)
        return _refusal("The request waited for a row of this model as long as it may.", wait_s)

    def _place_s(self, ticket: Ticket, full: Full, capacity: int | None, now: float) -> float:
        """Until there is a place for it, after those that were promised already.

        A place becomes free when a stream of the tenant begins to run.
        """
        begun = self._places.missing(ticket.tenant, full)
        ended = self._classes.place_of(ticket, begun, others_return=True)
        wait_s = self._rate.surely_s(ended, capacity or 1, now)
        return self._places.promise(ticket.tenant, full, now + wait_s) - now


def _refusal(message: str, retry_after_s: float) -> RateLimited:
    return RateLimited(
        f"{message} Try again in {max(retry_after_s, 1):.0f} s.",
        retry_after_s=retry_after_s,
        code=ErrorCode.QUEUE_FULL,
    )
