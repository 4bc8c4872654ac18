"""A scheduler whose grants and preemptions the test decides on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.domain.scheduling import Standing, Ticket


class GivenPermit:
    def __init__(
        self, ticket: Ticket, preempted: Callable[[], None], *, took_over: bool = False
    ) -> None:
        self.ticket = ticket
        self.took_over = took_over
        self.preempt = preempted
        self.uncached: list[int] = []
        self.releases = 0
        self._tokens: Callable[[], int] = lambda: 0

    @property
    def tokens(self) -> int:
        return self._tokens()

    def see_prompt(self, uncached_tokens: int) -> None:
        self.uncached.append(uncached_tokens)

    def meter(self, tokens: Callable[[], int]) -> None:
        self._tokens = tokens

    def release(self) -> None:
        self.releases += 1


class GivenScheduler:
    """Grants at once, unless `is_open` is cleared. moved: of those that wait, by their order.

    takes_over: whether those that have not begun get their row from another stream.
    """

    def __init__(self) -> None:
        self.permits: list[GivenPermit] = []
        self.waiting: list[Callable[[Standing], None]] = []
        self.tickets: list[Ticket] = []
        self.refusal: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.takes_over = False
        self._granted: Callable[[Standing], None] | None = None

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> GivenPermit:
        self.tickets.append(ticket)
        if self.refusal is not None and not ticket.has_begun:
            raise self.refusal
        self.waiting.append(moved)
        try:
            await self.is_open.wait()
            while not (self.is_open.is_set() or moved == self._granted):
                await self.is_open.wait()
        finally:
            self.waiting.remove(moved)
        took_over = self.takes_over and not ticket.has_begun
        self.permits.append(GivenPermit(ticket, preempted, took_over=took_over))
        return self.permits[-1]

    def grant(self, waiting: Callable[[Standing], None]) -> None:
        """To one of `waiting`, while it is closed."""
        self._granted = waiting
        self.is_open.set()
        self.is_open.clear()

    @property
    def held(self) -> int:
        return sum(not one.releases for one in self.permits)
