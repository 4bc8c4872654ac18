"""What one request has used, as its engines counted. Used by `reservation`."""

from __future__ import annotations

from datetime import datetime, timezone

from proxy.domain.identity import Caller
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta, Usage
from proxy.domain.price import NANOS
from proxy.domain.record import RequestRecord
from proxy.domain.usage import UsageRow, UsageSink


class RequestUsage:
    """report: the service's. sink: None to keep no usage. Cached tokens are counted here, since
    callers may not be allowed to see them.
    """

    __slots__ = ("_cached", "_queue_s", "_report", "_sink", "caller")

    def __init__(self, caller: Caller, report: RequestRecord, sink: UsageSink | None) -> None:
        self.caller = caller
        self._report = report
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
        for count in self._report.counts:
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
