"""What one request reserves of its caller's limits, for as long as it runs.

Made by `request_limiter`, entered by the generation service.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from operator import sub

from typing_extensions import Self

from proxy.access.limits.caller_meters import Amounts, CallerMeters, MeteredCallers, Unit
from proxy.access.limits.standing import Standings
from proxy.access.limits.token_bounds import output_bound, prompt_bounds
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, LimitsUnavailable, RateLimited, ServiceError
from proxy.domain.identity import Caller
from proxy.domain.model import NANOS, ModelCard, Price
from proxy.domain.output import TokenDelta, Usage
from proxy.domain.record import RequestRecord, running_record
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageRow, UsageStore
from proxy.state.meters import NEVER_US, Grant, Ledger, LedgerUnavailable, Meter, MeterKind, Refusal

ONE_REQUEST = (1, 1)
NO_MORE_REQUESTS = (0, 0, 0)
MOST_BYTES_A_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Rates:
    """cached_weight: what a cached token counts in limits on tokens, 0 to 1."""

    price: Price
    cached_weight: float

    def reserved(self, needs: Needs) -> Amounts:
        prompt, output = sum(needs.prompts.values()), needs.output
        cost = self.price.nanos(prompt_tokens=prompt, cached_tokens=0, output_tokens=output)
        return (*needs.counts, prompt, output, prompt + output, cost)

    def used(self, usage: Usage, counts: tuple[int, int, int]) -> Amounts:
        prompt, cached, output = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        counted = prompt - int(cached * (1 - self.cached_weight))
        cost = self.price.nanos(prompt_tokens=prompt, cached_tokens=cached, output_tokens=output)
        return (*counts, counted, output, counted + output, cost)


@dataclass(slots=True)
class Needs:
    """The most that a request, or a later round of it, can use.

    counts: requests, running requests, running streams. prompts: tokens by the id of the engine's
    request. output: tokens of all choices.
    """

    counts: tuple[int, int, int]
    prompts: dict[str, int]
    output: int


class RequestUsage:
    """record: the service's. sink: None to keep no usage. Cached tokens are counted here, since
    callers may not be allowed to see them.
    """

    __slots__ = ("_cached", "_queue_s", "_record", "_sink", "caller")

    def __init__(self, caller: Caller, record: RequestRecord, sink: UsageStore | None) -> None:
        self.caller = caller
        self._record = record
        self._sink = sink
        self._cached: dict[str, int] = {}
        self._queue_s = 0.0

    def see_first(self, request_id: str, delta: TokenDelta, *, counts_prompt: bool) -> None:
        if delta.cached_tokens and counts_prompt:
            self._cached[request_id] = delta.cached_tokens
        if delta.queue_s:
            self._queue_s = max(self._queue_s, delta.queue_s)

    def end(self, error: BaseException | None, card: ModelCard) -> Usage:
        """error: of the request; a client that disconnects is none. Returns what was used."""
        usage = self._usage()
        if self._sink is not None:
            self._sink.add(self._row(usage, error, card))
        return usage

    def _usage(self) -> Usage:
        prompt = output = reasoning = 0
        for count in self._record.counts:
            usage = count.usage
            prompt += usage.prompt_tokens
            output += usage.completion_tokens
            reasoning += usage.reasoning_tokens
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=output,
            cached_tokens=sum(self._cached.values()),
            reasoning_tokens=reasoning,
        )

    def _row(self, usage: Usage, error: BaseException | None, card: ModelCard) -> UsageRow:
        nanos = card.price.nanos(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
        )
        return UsageRow(
            tenant=self.caller.tenant,
            key_id=self.caller.key_id,
            model=card.name,
            at=datetime.now(timezone.utc),
            requests=1,
            errors=int(isinstance(error, Exception)),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            queue_s=self._queue_s,
            cost=nanos / NANOS,
        )


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
            raise refusal_error(result, amounts[self._meters.units[result.at]])
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


SCOPES = {"tenant": "your organization", "key": "your key", "model": "this model"}


def refusal_error(refusal: Refusal, amount: int) -> RateLimited:
    """amount: that the request needs of the meter that refuses."""
    meter = refusal.meter
    wait_s = refusal.wait_us / 1e6
    if refusal.wait_us >= NEVER_US:
        return RateLimited(
            f"{_limit(meter)}, and this request alone may need {_amount(meter, amount)}. Ask for "
            "fewer output tokens, or send a shorter prompt.",
            retry_after_s=math.inf,
            code=ErrorCode.REQUEST_EXCEEDS_LIMIT,
            limit=meter.name,
        )
    match meter.kind:
        case MeterKind.GAUGE:
            advice, code = (
                "all of them are in use. Try again when one has ended",
                ErrorCode.CONCURRENCY_LIMIT_EXCEEDED,
            )
        case MeterKind.PERIOD:
            left = _amount(meter, refusal.look(refusal.at)[0])
            advice, code = (
                f"{left} are left, and this request may need {_amount(meter, amount)}. The next "
                "month begins at 00:00 UTC on its first day",
                ErrorCode.INSUFFICIENT_QUOTA,
            )
        case _:
            advice = f"it is reached. Try again in {wait_s:.3g} seconds"
            code = ErrorCode.RATE_LIMIT_EXCEEDED
    return RateLimited(
        f"{_limit(meter)}: {advice}.", retry_after_s=wait_s, code=code, limit=meter.name
    )


def _limit(meter: Meter) -> str:
    scope, _, name = meter.name.partition(".")
    most = meter.limit
    if meter.kind is MeterKind.RATE:
        rate = 1e6 / meter.span_us
        return f"The limit {name} of {SCOPES[scope]} is {rate:.4g}, of which {most} at once"
    return f"The limit {name} of {SCOPES[scope]} is {_amount(meter, most)}"


def _amount(meter: Meter, amount: int) -> str:
    return f"{amount / NANOS:.6g}" if meter.name.endswith("monthly_budget") else str(amount)
