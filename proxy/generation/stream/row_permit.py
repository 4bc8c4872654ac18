"""One engine stream's place among those that want the model's rows. Used by engine_stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.identity import current_caller
from proxy.domain.record import RequestRecord, StageName, Wait
from proxy.domain.request import GenerationRequest
from proxy.domain.scheduling import FREE_PERMIT, Permit, Scheduler, Standing, Ticket
from proxy.generation.choice.choice_cost import UsageCounter

CHARACTERS_A_TOKEN = 4  # bytes of UTF-8; the engine's own count replaces the estimate


class RowPermit:
    """preempted: called when the stream has to stop; `must_yield` is set then. counter: of
    the tokens that it has generated.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ticket: Ticket,
        record: RequestRecord,
        *,
        counter: UsageCounter,
        preempted: Callable[[], None],
    ) -> None:
        self.must_yield = False
        self._scheduler = scheduler
        self._ticket = ticket
        self._record = record
        self._counter = counter
        self._preempted = preempted
        self._permit: Permit = FREE_PERMIT
        self._has_row = False
        self._waited_s = 0.0  # in all: a stream that yields waits again

    async def acquire(self) -> None:
        """A stream that yielded is the first of its tenant, and nothing refuses it.

        Raises as Scheduler.acquire.
        """
        loop, record, ticket = asyncio.get_running_loop(), self._record, self._ticket
        if self.must_yield:
            self.must_yield = False
            ticket = replace(ticket, has_begun=True, prompt_tokens=0)
        began = loop.time()
        try:
            with record.stage(StageName.QUEUE):
                self._permit = await self._scheduler.acquire(
                    ticket, moved=self._moved, preempted=self._yield
                )
        finally:
            has_waited = record.waits.pop(self, None) is not None
        if has_waited:
            self._waited_s += loop.time() - began
            record.queue_s = max(record.queue_s or 0.0, self._waited_s)
        self._has_row = False
        counter, before = self._counter, self._counter.tokens
        self._permit.meter(lambda: counter.tokens - before)

    @property
    def took_over(self) -> bool:
        """See domain.scheduling.Permit."""
        return self._permit.took_over

    def see_first(self, uncached_tokens: int) -> None:
        """The first delta of an engine stream. Only the first one of a permit counts: a stream that
        loses its engine keeps its permit. See domain.scheduling.Permit.see_prompt.
        """
        if not self._has_row:
            self._has_row = True
            self._permit.see_prompt(uncached_tokens)

    def release(self) -> None:
        self._permit.release()

    def _moved(self, standing: Standing) -> None:
        waits, now = self._record.waits, asyncio.get_running_loop().time()
        since = waits[self].since if self in waits else now
        waits[self] = Wait(standing, since, now)

    def _yield(self) -> None:
        self.must_yield = True
        self._preempted()


def ticket_of(
    asked: GenerationRequest, request: EngineRequest, *, may_yield: bool, has_begun: bool
) -> Ticket:
    """For a stream of the running request, `asked`. Who has no key is known by an address."""
    who, card = current_caller.get(), request.model
    return Ticket(
        queue=f"{card.pool}/{card.triton_model}",
        tenant=asked.caller if who.is_shared else who.tenant,
        weight=who.weight,
        priority=asked.priority or 0,
        prompt_tokens=_estimated_tokens(request),
        patience_s=asked.queue_patience_s,
        has_begun=has_begun,
        may_yield=may_yield,
        engine_takes_priority="priority" in card.capabilities,
    )


def _estimated_tokens(request: EngineRequest) -> int:
    text, ids = request.text or "", request.token_ids or ()
    size = len(text) if text.isascii() else len(text.encode())
    return -(-size // CHARACTERS_A_TOKEN) + len(ids)
