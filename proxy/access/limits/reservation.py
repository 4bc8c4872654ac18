"""What one request reserves of its caller's limits, for as long as it runs.

Made by `request_limiter`, entered by the generation service.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import sub

from typing_extensions import Self

from proxy.access.limits import refusals
from proxy.access.limits.caller_meters import Amounts, CallerMeters, Unit
from proxy.access.limits.metered_callers import MeteredCallers
from proxy.access.limits.rates import Needs, Rates
from proxy.access.limits.request_usage import RequestUsage
from proxy.access.limits.standing import Standings
from proxy.access.limits.token_bounds import output_bound, prompt_bounds
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    LimitsUnavailable,
    RateLimited,
    ServiceError,
)
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.state.meters import Grant, Ledger, LedgerUnavailable, Meter, Refusal

ONE_REQUEST = (1, 1)
NO_MORE_REQUESTS = (0, 0, 0)
MOST_BYTES_A_TOKEN = 16
INPUT_UNITS = frozenset((Unit.INPUT, Unit.TOTAL, Unit.COST))


@dataclass(slots=True, kw_only=True)
class Means:
    """What all reservations use. on_refusal: gets the name of the limit that refuses.

    failed_at: when the ledger last failed a request, on the clock of time.monotonic.
    """

    ledger: Ledger
    callers: MeteredCallers
    tokenizer: Tokenizer
    cached_weight: float
    on_refusal: Callable[[str], None]
    failed_at: float = -math.inf

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """
        Raises:
            LimitsUnavailable: nobody can say whether the limits hold.
        """
        try:
            return await self.ledger.reserve(meters, amounts)
        except Exception as error:
            self.failed_at = time.monotonic()
            if not isinstance(error, LedgerUnavailable):
                raise
            raise LimitsUnavailable(
                "The limits cannot be checked at present. Try again later.", detail=str(error)
            ) from error


@dataclass(slots=True)
class _Held:
    grant: Grant
    needs: Needs
    amounts: Amounts


class Reservation:
    """An async context manager. When it ends, all that was not used is given back.

    request: within the operator's limits. engine_requests: one for each of its prompts.
    """

    def __init__(
        self,
        means: Means,
        usage: RequestUsage,
        request: GenerationRequest,
        card: ModelCard,
        engine_requests: Sequence[EngineRequest],
        *,
        is_stream: bool,
    ) -> None:
        self._means = means
        self._usage = usage
        self._card = card
        self._request = request
        self._engine_requests = engine_requests
        self._counts = (*ONE_REQUEST, int(is_stream))
        self._rates = Rates(card.price, means.cached_weight)
        self._meters: CallerMeters | None = None
        self._held: list[_Held] = []

    async def __aenter__(self) -> Self:
        """
        Raises:
            RateLimited: a limit is reached.
            LimitsUnavailable: nobody can say whether one is.
        """
        self._meters = await self._means.callers.meters(self._usage.caller, self._card.name)
        if self._meters.meters:
            await self._reserve(self._request, self._engine_requests, self._counts)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for nothing: the request may have been cancelled."""
        usage = self._usage.end(error, self._card)
        is_used = usage.total_tokens or not isinstance(error, Exception)
        self._settle(self._rates.used(usage, self._counts if is_used else NO_MORE_REQUESTS))

    async def extend(
        self, request: GenerationRequest, engine_requests: Sequence[EngineRequest], *, output: bool
    ) -> None:
        """For a later round or attempt. output: its output is not among what was reserved.

        Raises as `__aenter__` does.
        """
        if self._meters is not None and self._meters.meters:
            more = replace(request, max_tokens=0) if not output else request
            await self._reserve(more, engine_requests, NO_MORE_REQUESTS)

    def see_first(self, request_id: str, delta: TokenDelta, *, counts_prompt: bool) -> None:
        """Corrects the reservation by the engine's count of a prompt.

        Called with the first delta of each engine stream. request_id: of the choice's first
        engine request.
        """
        self._usage.see_first(request_id, delta, counts_prompt=counts_prompt)
        if not counts_prompt or delta.prompt_tokens is None:
            return
        for held in self._held:
            reserved = held.needs.prompts.get(request_id)
            if reserved is None or reserved == delta.prompt_tokens:
                continue
            if self._request.thinking_budget is None:  # else a later stream has a longer prompt
                held.needs.prompts[request_id] = delta.prompt_tokens
                self._amend(held)
            return

    async def _reserve(
        self,
        request: GenerationRequest,
        engine_requests: Sequence[EngineRequest],
        counts: tuple[int, int, int],
    ) -> None:
        prompts = prompt_bounds(engine_requests, request.thinking_budget)
        needs = Needs(counts, prompts, output_bound(request, self._card))
        amounts, result = await self._asked(needs)
        if isinstance(result, Refusal) and self._may_fit(result, needs):
            needs.prompts = await self._counted(engine_requests, needs.prompts)
            amounts, result = await self._asked(needs)
        assert self._meters is not None
        standings: Standings | None = running_record().standings
        if standings is not None:
            standings.set(self._meters, result.look)
        if isinstance(result, Refusal):
            self._means.on_refusal(result.meter.name)
            raise refusals.error_of(result, amounts[self._meters.units[result.at]])
        if standings is not None:
            standings.is_counted = True
        self._held.append(_Held(result, needs, amounts))

    async def _asked(self, needs: Needs) -> tuple[Amounts, Grant | Refusal]:
        assert self._meters is not None
        amounts = self._rates.reserved(needs)
        meters = self._meters
        return amounts, await self._means.reserve(meters.meters, meters.amounts(amounts))

    def _may_fit(self, refusal: Refusal, needs: Needs) -> bool:
        """Whether the prompts must be counted exactly: bytes are several times as many."""
        assert self._meters is not None
        unit, (left, _) = self._meters.units[refusal.at], refusal.look(refusal.at)
        if unit not in INPUT_UNITS:
            return False
        amount = self._rates.reserved(needs)[unit]
        return amount > refusal.meter.limit or left * MOST_BYTES_A_TOKEN >= amount

    async def _counted(
        self, engine_requests: Sequence[EngineRequest], bounds: dict[str, int]
    ) -> dict[str, int]:
        """The bounds where the tokenizer cannot say.

        Raises:
            InvalidRequest: the prompt does not fit into the model, as a generation says too.
        """
        counted = dict(bounds)
        for each in engine_requests:
            if each.token_ids is not None:
                continue
            try:
                admitted = await self._means.tokenizer.admit(replace(each, constraint=None))
            except (RateLimited, ServiceError):
                continue
            counted[each.id] = len(admitted.ids) + (self._request.thinking_budget or 0)
        return counted

    def _amend(self, held: _Held) -> None:
        assert self._meters is not None
        held.amounts = self._rates.reserved(held.needs)
        self._means.ledger.amend(held.grant, self._meters.amounts(held.amounts))

    def _settle(self, used: Amounts) -> None:
        """Counts what was used where it was reserved; more than that at the last reservation."""
        if self._meters is None:
            return
        left: tuple[int, ...] = used
        for number, held in enumerate(self._held, 1):
            is_last = number == len(self._held)
            mine = left if is_last else tuple(map(min, left, held.amounts))
            left = tuple(map(sub, left, mine))
            self._means.ledger.settle(held.grant, [mine[unit] for unit in self._meters.units])
        self._held.clear()
