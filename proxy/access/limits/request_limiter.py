"""Limits of tenants, keys and models. Called by the service and by api."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from typing_extensions import Self

from proxy.access.limits.caller_meters import NOTHING, Amounts, MeteredCallers, has_limits
from proxy.access.limits.reservation import Means, RequestUsage, Reservation, refusal_error
from proxy.access.limits.standing import Standings
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import LimitsUnavailable
from proxy.domain.health import Concern
from proxy.domain.identity import Caller, Limits
from proxy.domain.model import ModelCard
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest
from proxy.domain.request_limits import smaller
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageStore
from proxy.state.meters import Grant, Ledger, Refusal

DEFAULT_OUTPUT_TOKENS = 4096
# Of a limit, by one request that does not say how many tokens it wants.
PART_OF_LIMIT = 4
# How long a failure of the ledger is shown: it may concern some callers only, with others between.
FAILURE_S = 60.0


def under_ceiling(
    request: GenerationRequest, caller: Caller, most: int, record: RequestRecord
) -> GenerationRequest:
    """The request with the caller's ceiling, where its priority is higher; notes it in the record.

    A request without a priority has 0, so a ceiling below 0 is its priority.

    Args:
        most: the ceiling of a caller that has none of its own.
    """
    ceiling = most if caller.max_priority is None else caller.max_priority
    if (request.priority or 0) <= ceiling:
        return request
    if request.priority is None:
        return replace(request, priority=ceiling, has_assigned_priority=True)
    record.capped_priority = ceiling
    return replace(request, priority=ceiling)


ONE_RUNNING: Amounts = (1, 1, 0, 0, 0, 0, 0)
ONE_DONE: Amounts = (1, 0, 0, 0, 0, 0, 0)


class CountedRequest:
    """An async context manager, for as long as the request runs.

    Limits of a model do not count it: some of these routes name none.
    """

    def __init__(self, means: Means, caller: Caller, standings: Standings) -> None:
        self._means = means
        self._caller = caller
        self._standings = standings
        self._grant: Grant | None = None
        self._used = ONE_DONE

    async def __aenter__(self) -> Self:
        """
        Raises:
            RateLimited: a limit on requests is reached.
            LimitsUnavailable: nobody can say whether one is.
        """
        self._meters = await self._means.callers.meters(self._caller, "")
        if self._meters.meters:
            await self._reserve()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for nothing: the request may have been cancelled."""
        if isinstance(error, Exception):
            self.give_back()
        if self._grant is not None:
            self._means.ledger.settle(self._grant, self._meters.amounts(self._used))

    def give_back(self) -> None:
        """The request was refused for another reason, and does not count unless it was costly."""
        if not self._standings.is_costly:
            self._used = NOTHING

    async def _reserve(self) -> None:
        amounts = self._meters.amounts(ONE_RUNNING)
        result = await self._means.reserve(self._meters.meters, amounts)
        self._standings.set(self._meters, result.look)
        if isinstance(result, Refusal):
            self._means.on_refusal(result.meter.name)
            raise refusal_error(result, amounts[result.at])
        self._grant, self._standings.is_counted = result, True


UNCHECKED = Concern(message="the limits of some requests could not be checked", is_fatal=False)


class RequestLimiter:
    """One for the application. Callers without limits cost nothing, unless usage is kept.

    Args:
        output_tokens: the most for a choice without `max_tokens`, of a caller whose output is
            limited: so much must be reserved.
        cached_weight: what a cached prompt token counts in limits on tokens, from 0 to 1.
        max_priority: of a caller without a ceiling of its own; higher numbers go first.
        usage: gets what each request used, and knows what was used before the ledger began to
            count.
        on_refusal: called with the name of the limit that refuses a request.
    """

    def __init__(
        self,
        ledger: Ledger,
        tokenizer: Tokenizer,
        *,
        usage: UsageStore | None = None,
        output_tokens: int = DEFAULT_OUTPUT_TOKENS,
        cached_weight: float = 1.0,
        max_priority: int = 0,
        on_refusal: Callable[[str], None] = lambda limit: None,
    ) -> None:
        self._usage = usage
        self._output_tokens = output_tokens
        self._max_priority = max_priority
        self._means = Means(
            ledger=ledger,
            callers=MeteredCallers(usage),
            tokenizer=tokenizer,
            cached_weight=cached_weight,
            on_refusal=on_refusal,
        )

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """For readiness: whether the ledger failed a request within the last minute."""
        has_failed = time.monotonic() - self._means.failed_at < FAILURE_S
        return (UNCHECKED,) if has_failed else ()

    @property
    def is_ledger_up(self) -> bool:
        return self._means.ledger.outage is None and not self.concerns

    def capped(
        self, request: GenerationRequest, card: ModelCard, caller: Caller, record: RequestRecord
    ) -> GenerationRequest:
        """With a priority that the caller may have, and with a bound on the output, where the
        request has none and the caller's is limited.
        """
        request = under_ceiling(request, caller, self._max_priority, record)
        is_bounded = request.max_tokens is not None or not has_limits(caller)
        if is_bounded or "limits" not in card.capabilities:
            return request
        each = [
            max(limit // (PART_OF_LIMIT * request.generations), 1)
            for limit in _output_limits(caller, card)
        ]
        if not each:
            return request
        cap = min(self._output_tokens, *each)
        return replace(request, token_cap=smaller(request.token_cap, cap))

    def reservation(
        self,
        caller: Caller,
        request: GenerationRequest,
        card: ModelCard,
        engine_requests: Sequence[EngineRequest],
        record: RequestRecord,
        *,
        is_stream: bool,
    ) -> AbstractAsyncContextManager[Reservation | None]:
        """For as long as the request runs. engine_requests: one for each prompt."""
        if self._usage is None and not has_limits(caller):
            return NOTHING_RESERVED
        usage = RequestUsage(caller, record, self._usage)
        return Reservation(self._means, usage, request, card, engine_requests, is_stream=is_stream)

    def counted(self, caller: Caller, standings: Standings) -> CountedRequest:
        """A request that generates nothing; for as long as it runs. standings: written."""
        return CountedRequest(self._means, caller, standings)

    async def look(self, caller: Caller, standings: Standings) -> None:
        """Where the caller stands, for a response that used nothing."""
        meters = await self._means.callers.meters(caller, "")
        if not meters.meters:
            return
        try:
            result = await self._means.reserve(meters.meters, meters.amounts(NOTHING))
        except LimitsUnavailable:
            return
        standings.set(meters, result.look)


NOTHING_RESERVED = nullcontext()  # of a caller without limits


def _output_limits(caller: Caller, card: ModelCard) -> Iterator[int]:
    """Output tokens that each of the caller's limits allows."""
    for limits in _limits(caller, card):
        for name in OUTPUT_LIMITS:
            if (limit := getattr(limits, name)) is not None:
                yield limit
        if limits.monthly_budget is not None and card.price.output > 0:
            yield int(limits.monthly_budget * 1_000_000 / card.price.output)


def _limits(caller: Caller, card: ModelCard) -> Iterator[Limits]:
    yield caller.tenant_limits
    yield caller.key_limits
    if (of_model := caller.of_models.get(card.name)) is not None:
        yield of_model


OUTPUT_LIMITS = (
    "output_tokens_per_minute",
    "tokens_per_minute",
    "output_tokens_per_day",
    "tokens_per_day",
    "monthly_tokens",
)
