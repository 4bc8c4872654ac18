"""Limits of tenants, keys and models, and what each request reserves of them while it runs.

Called by the generation service and by api.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from operator import sub

from typing_extensions import Self

from proxy.access.limits.caller_meters import (
    NOTHING,
    Amounts,
    CallerMeters,
    MeteredCallers,
    Standings,
    Unit,
)
from proxy.access.limits.token_bounds import output_bound, prompt_bounds
from proxy.domain.batch_line import current_line
from proxy.domain.engine import LOWEST_PRIORITY, EngineRequest
from proxy.domain.errors import ErrorCode, LimitsUnavailable, RateLimited, ServiceError
from proxy.domain.health import Concern
from proxy.domain.identity import Caller
from proxy.domain.model import NANOS, ModelCard
from proxy.domain.output import TokenDelta, Usage
from proxy.domain.record import RequestRecord, running_record
from proxy.domain.request import GenerationRequest
from proxy.domain.request_limits import smaller
from proxy.domain.tokenizer import Tokenizer
from proxy.domain.usage import UsageRow, UsageStore
from proxy.state.meters import (
    NEVER_US,
    Grant,
    Ledger,
    LedgerUnavailable,
    Meter,
    MeterKind,
    Refusal,
    Standing,
)

# The most that is reserved for a choice without `max_tokens`, of a caller whose output is limited.
DEFAULT_OUTPUT_TOKENS = 4096
# Of a limit, by one request that does not say how many tokens it wants.
PART_OF_LIMIT = 4
OUTPUT_LIMITS = (
    "output_tokens_per_minute",
    "tokens_per_minute",
    "output_tokens_per_day",
    "tokens_per_day",
    "monthly_tokens",
)
# How long a failure of the ledger is shown: it may concern some callers only, with others between.
FAILURE_S = 60.0
UNCHECKED = Concern(message="the limits of some requests could not be checked", is_fatal=False)
NOTHING_RESERVED = nullcontext()  # of a caller without limits
ONE_RUNNING: Amounts = (1, 1, 0, 0, 0, 0, 0)
ONE_DONE: Amounts = (1, 0, 0, 0, 0, 0, 0)
NO_MORE_REQUESTS = (0, 0, 0)
INPUT_UNITS = frozenset((Unit.INPUT, Unit.TOTAL, Unit.COST))
MOST_BYTES_A_TOKEN = 16


class RequestLimiter:
    """One for the application. Callers without limits cost nothing, unless usage is kept.

    Args:
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
        cached_weight: float = 1.0,
        max_priority: int = 0,
        on_refusal: Callable[[str], None] = lambda limit: None,
    ) -> None:
        self.ledger = ledger
        self.tokenizer = tokenizer
        self.usage = usage
        self.cached_weight = cached_weight
        self.callers = MeteredCallers(usage)
        self._max_priority = max_priority
        self._on_refusal = on_refusal
        self._failed_at = -math.inf  # when the ledger last failed a request

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """For readiness: whether the ledger failed a request within the last minute."""
        return (UNCHECKED,) if time.monotonic() - self._failed_at < FAILURE_S else ()

    @property
    def is_ledger_up(self) -> bool:
        return self.ledger.outage is None and not self.concerns

    def ceiling(self, caller: Caller) -> int:
        """The highest priority that it gets."""
        return self._max_priority if caller.max_priority is None else caller.max_priority

    def capped(
        self, request: GenerationRequest, card: ModelCard, caller: Caller, record: RequestRecord
    ) -> GenerationRequest:
        """With a priority that the caller may have, which `record` notes, and with a bound on the
        output, where the request has none and the caller's is limited.

        A request without a priority has 0, so a ceiling below 0 is its priority.
        """
        is_batch = current_line.get() is not None
        ceiling = LOWEST_PRIORITY if is_batch else self.ceiling(caller)
        if (request.priority or 0) > ceiling:
            is_assigned = is_batch or request.priority is None
            request = replace(request, priority=ceiling, has_assigned_priority=is_assigned)
            record.capped_priority = None if is_assigned else ceiling
        is_bounded = request.max_tokens is not None or not caller.has_limits
        if is_bounded or "limits" not in card.capabilities:
            return request
        each = [
            max(limit // (PART_OF_LIMIT * request.generations), 1)
            for limit in _output_limits(caller, card)
        ]
        if not each:
            return request
        cap = min(DEFAULT_OUTPUT_TOKENS, *each)
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
        if self.usage is None and not caller.has_limits and current_line.get() is None:
            return NOTHING_RESERVED
        return Reservation(
            self, caller, request, card, engine_requests, record, is_stream=is_stream
        )

    @asynccontextmanager
    async def counted(
        self, caller: Caller, standings: Standings, *, only_reads: bool = False
    ) -> AsyncIterator[None]:
        """A request that generates nothing; for as long as it runs. Limits of a model do not count
        it: some of these routes name none. One that only reads takes no part in what runs at once.

        At the end nothing is awaited: the request may have been cancelled.

        Raises:
            RateLimited: a limit on requests is reached.
            LimitsUnavailable: nobody can say whether one is.
        """
        meters = await self.callers.meters(caller, "")
        if not meters.meters:
            yield
            return
        amounts = ONE_DONE if only_reads else ONE_RUNNING
        result = await self.ask(meters, amounts)
        grant = self.granted(result, meters, amounts, standings)
        try:
            yield
        except Exception:
            standings.is_refused = True
            raise
        finally:
            counts = standings.is_costly or not standings.is_refused
            self.ledger.settle(grant, meters.amounts(ONE_DONE if counts else NOTHING))

    async def look(self, caller: Caller, standings: Standings) -> None:
        """Where the caller stands, for a response that used nothing."""
        meters = await self.callers.meters(caller, "")
        if not meters.meters:
            return
        try:
            result = await self.ask(meters, NOTHING)
        except LimitsUnavailable:
            return
        standings.set(meters, result.look)

    async def look_at(self, meters: CallerMeters) -> Sequence[Standing]:
        """For each meter, what is left and when it is full again. Raises as `ask` does."""
        result = await self.ask(meters, NOTHING)
        return [result.look(at) for at in range(len(meters.meters))]

    async def ask(self, meters: CallerMeters, amounts: Amounts) -> Grant | Refusal:
        """
        Raises:
            LimitsUnavailable: nobody can say whether the limits hold.
        """
        try:
            return await self.ledger.reserve(meters.meters, meters.amounts(amounts))
        except Exception as error:
            self._failed_at = time.monotonic()
            if not isinstance(error, LedgerUnavailable):
                raise
            raise LimitsUnavailable(
                "The limits cannot be checked at present. Try again later.", detail=str(error)
            ) from error

    def granted(
        self,
        result: Grant | Refusal,
        meters: CallerMeters,
        amounts: Amounts,
        standings: Standings | None,
    ) -> Grant:
        """The grant, once the standings are set. Raises RateLimited: it is a refusal."""
        if standings is not None:
            refused = result.at if isinstance(result, Refusal) else None
            standings.set(meters, result.look, refused)
        if isinstance(result, Refusal):
            self._on_refusal(result.meter.name)
            raise refusal_error(result, amounts[meters.units[result.at]])
        if standings is not None:
            standings.is_counted = True
        return result


def _output_limits(caller: Caller, card: ModelCard) -> Iterator[int]:
    """Output tokens that each of the caller's limits allows."""
    for limits in (caller.tenant_limits, caller.key_limits, caller.of_models.get(card.name)):
        if limits is None:
            continue
        for name in OUTPUT_LIMITS:
            if (limit := getattr(limits, name)) is not None:
                yield limit
        if limits.monthly_budget is not None and card.price.output > 0:
            yield int(limits.monthly_budget * 1_000_000 / card.price.output)


@dataclass(slots=True)
class _Held:
    """The most that a request, or a later round of it, can use.

    counts: requests, running requests, running streams. prompts: tokens by the id of the engine's
    request. output: tokens of all choices.
    """

    counts: tuple[int, int, int]
    prompts: dict[str, int]
    output: int
    amounts: Amounts
    grant: Grant


class Reservation:
    """An async context manager. When it ends, all that was not used is given back, and the usage is
    kept. Where the caller has no limits, it only keeps the usage. That of a batch's line is left to
    the batch: implements domain.batch_line.Charge.

    request: within the operator's limits. engine_requests: one for each of its prompts.
    """

    def __init__(
        self,
        limiter: RequestLimiter,
        caller: Caller,
        request: GenerationRequest,
        card: ModelCard,
        engine_requests: Sequence[EngineRequest],
        record: RequestRecord,
        *,
        is_stream: bool,
    ) -> None:
        self._limiter = limiter
        self._caller = caller
        self._request = request
        self._card = card
        self._engine_requests = engine_requests
        self._record = record
        self._counts = (1, 1, int(is_stream))
        self._held: list[_Held] = []
        self._line = current_line.get()
        self._has_failed = False
        self._used_by_line = Usage()
        # Counted here, since callers may not be allowed to see them.
        self._cached: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        """
        Raises:
            RateLimited: a limit is reached.
            LimitsUnavailable: nobody can say whether one is.
        """
        self._meters = await self._limiter.callers.meters(self._caller, self._card.name)
        await self._reserve(self._request, self._engine_requests, self._counts)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for nothing: the request may have been cancelled. Stopped engines send their last
        tokens a moment later; these are counted then, but nothing runs any more.
        """
        has_failed = isinstance(error, Exception)  # a client that disconnects is not a failure
        if self._line is not None:
            self._has_failed, self._line.charge = has_failed, self
            return
        if not (late := self._record.charged_late):
            self._settle([], has_failed)
            return
        self._replace(self._limiter.ledger.amend, self._used([]), has_failed)
        stopped = asyncio.gather(*late, return_exceptions=True)
        stopped.add_done_callback(lambda done: self._settle(done.result(), has_failed))

    def _settle(self, late: Sequence[Usage | BaseException], has_failed: bool) -> None:
        usage = self._used([one for one in late if isinstance(one, Usage)])
        nanos = self._replace(self._limiter.ledger.settle, usage, has_failed)
        if self._limiter.usage is not None:
            self._limiter.usage.add(self._row(usage, nanos, errors=int(has_failed)))

    async def row(self) -> UsageRow:
        late = await asyncio.gather(*self._record.charged_late, return_exceptions=True)
        used = self._used_by_line = self._used([one for one in late if isinstance(one, Usage)])
        cost = self._amounts(
            NO_MORE_REQUESTS, used.prompt_tokens, used.completion_tokens, used.cached_tokens
        )[Unit.COST]
        return self._row(used, cost, errors=int(self._has_failed))

    def settle(self, *, counts: bool) -> None:
        used = self._used_by_line if counts else Usage()
        self._replace(self._limiter.ledger.settle, used, self._has_failed or not counts)

    def _used(self, late: Sequence[Usage]) -> Usage:
        """What the engines counted. late: of streams that were stopped."""
        used = self._record.usage or Usage()
        unread = self._record.unused_tokens + sum(one.completion_tokens for one in late)
        return replace(
            used,
            prompt_tokens=used.prompt_tokens or max((one.prompt_tokens for one in late), default=0),
            completion_tokens=used.completion_tokens + unread,
            cached_tokens=sum(self._cached.values()),
        )

    def _replace(
        self, change: Callable[[Grant, Sequence[int]], None], usage: Usage, has_failed: bool
    ) -> int:
        """Counts what was used where it was reserved; more than that at the last reservation.
        Returns its cost. change: the ledger's `amend` or `settle`.
        """
        counts = NO_MORE_REQUESTS if has_failed and not usage.total_tokens else ONE_DONE[:3]
        used = left = self._amounts(
            counts, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        )
        for number, held in enumerate(self._held, 1):
            mine = left if number == len(self._held) else tuple(map(min, left, held.amounts))
            left = tuple(map(sub, left, mine))
            change(held.grant, self._meters.amounts(mine))
        return used[Unit.COST]

    async def extend(
        self, request: GenerationRequest, engine_requests: Sequence[EngineRequest], *, output: bool
    ) -> None:
        """For a later round or attempt. output: its output is not among what was reserved.

        Raises as `__aenter__` does.
        """
        more = request if output else replace(request, max_tokens=0)
        await self._reserve(more, engine_requests, NO_MORE_REQUESTS)

    def see_first(self, request_id: str, delta: TokenDelta, *, counts_prompt: bool) -> None:
        """Corrects the reservation by the engine's count of a prompt.

        Called with the first delta of each engine stream. request_id: of the choice's first
        engine request.
        """
        if not counts_prompt:
            return
        if delta.cached_tokens:
            self._cached[request_id] = delta.cached_tokens
        for held in self._held:
            reserved = held.prompts.get(request_id)
            if delta.prompt_tokens is None or reserved in (None, delta.prompt_tokens):
                continue
            if self._request.thinking_budget is None:  # else a later stream has a longer prompt
                held.prompts[request_id] = delta.prompt_tokens
                held.amounts = self._most(held.counts, held.prompts, held.output)
                self._limiter.ledger.amend(held.grant, self._meters.amounts(held.amounts))
            return

    async def _reserve(
        self,
        request: GenerationRequest,
        engine_requests: Sequence[EngineRequest],
        counts: tuple[int, int, int],
    ) -> None:
        meters = self._meters
        if not meters.meters:
            return
        prompts = prompt_bounds(engine_requests, request.thinking_budget)
        output = output_bound(request, self._card)
        amounts = self._most(counts, prompts, output)
        result = await self._limiter.ask(meters, amounts)
        if isinstance(result, Refusal) and _may_fit(result, amounts, meters.units[result.at]):
            prompts = await self._counted(engine_requests, prompts)
            amounts = self._most(counts, prompts, output)
            result = await self._limiter.ask(meters, amounts)
        standings: Standings | None = running_record().standings
        grant = self._limiter.granted(result, meters, amounts, standings)
        self._held.append(_Held(counts, prompts, output, amounts, grant))

    async def _counted(
        self, engine_requests: Sequence[EngineRequest], bounds: dict[str, int]
    ) -> dict[str, int]:
        """The prompts' exact counts; the bounds where the tokenizer cannot say.

        Raises:
            InvalidRequest: the prompt does not fit into the model, as a generation says too.
        """
        counted = dict(bounds)
        for each in engine_requests:
            if each.token_ids is not None or each.images or each.embeds is not None:
                continue
            await asyncio.sleep(0)  # a tokenizer of this process waits for nothing
            try:
                admitted = await self._limiter.tokenizer.admit(replace(each, constraint=None))
            except (RateLimited, ServiceError):
                continue
            counted[each.id] = len(admitted.ids) + (self._request.thinking_budget or 0)
        return counted

    def _most(self, counts: tuple[int, int, int], prompts: dict[str, int], output: int) -> Amounts:
        return self._amounts(counts, sum(prompts.values()), output)

    def _amounts(
        self, counts: tuple[int, int, int], prompt: int, output: int, cached: int = 0
    ) -> Amounts:
        cost = self._card.price.nanos(
            prompt_tokens=prompt, cached_tokens=cached, output_tokens=output
        )
        if self._line is not None:
            cost = round(cost * self._line.rate)
        counted = prompt - int(cached * (1 - self._limiter.cached_weight))
        return (*counts, counted, output, counted + output, cost)

    def _row(self, usage: Usage, nanos: int, *, errors: int) -> UsageRow:
        return UsageRow(
            tenant=self._caller.tenant,
            key_id=self._caller.key_id,
            model=self._card.name,
            at=datetime.now(timezone.utc),
            requests=1,
            errors=errors,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            queue_s=max(self._record.engine_queues_s, default=0.0),
            cost=nanos / NANOS,
        )


def _may_fit(refusal: Refusal, amounts: Amounts, unit: Unit) -> bool:
    """Whether the prompts must be counted exactly: bytes are several times as many."""
    if unit not in INPUT_UNITS:
        return False
    left, _ = refusal.look(refusal.at)
    amount = amounts[unit]
    return amount > refusal.meter.limit or left * MOST_BYTES_A_TOKEN >= amount


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
