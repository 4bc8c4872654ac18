"""What one request has used, as its engines counted. Used by `reservation`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from triton_openai.proxy.domain.generation import Report
from triton_openai.proxy.domain.identity import Caller
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta, Usage
from triton_openai.proxy.domain.price import NANOS
from triton_openai.proxy.domain.usage import UsageRow, UsageSink


class RequestUsage:
    """report: the service's. Cached tokens are counted here: callers may not see them."""

    __slots__ = ("_cached", "_queue_s", "_report", "_sink", "caller")

    def __init__(self, caller: Caller, report: Report, sink: UsageSink) -> None:
        self.caller = caller
        self._report = report
        self._sink = sink
        self._cached: dict[str, int] = {}
        self._queue_s = 0.0

    @property
    def has_tokens(self) -> bool:
        return self._report.usage is not None

    @property
    def usage(self) -> Usage:
        return replace(self._report.usage or Usage(), cached_tokens=sum(self._cached.values()))

    def see_first(self, request_id: str, delta: TokenDelta, *, counts_prompt: bool) -> None:
        if delta.cached_tokens and counts_prompt:
            self._cached[request_id] = delta.cached_tokens
        if delta.queue_s:
            self._queue_s = max(self._queue_s, delta.queue_s)

    def end(self, error: BaseException | None, card: ModelCard) -> None:
        """error: of the request; a client that disconnects is none."""
        usage = self.usage
        nanos = card.price.nanos(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
        )
        self._sink.add(
            UsageRow(
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
        )
