"""Counts and times generations, by model and by tenant. Called by the service.

The tables say how each metric is read from a request's record, when its generation has ended.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.samples import Exemplar

from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.output import Usage
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord, Result, Trace
from proxy.domain.request import GenerationRequest

# For metrics with one series for each endpoint or tenant.
FEW_BUCKETS_S = (0.001, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0)
# What docker/prometheus/slo.yml promises to short requests: the bounds are buckets.
SHORT_PROMPT_TOKENS, SHORT_ANSWER_TOKENS = 2000, 128
PROMISED_BUCKETS_S = (0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 10.0)
TOKEN_BUCKETS = (*(digit * 10**zeros for zeros in range(6) for digit in (1, 2, 5)), 1_000_000)
OTHER = "other"  # the tenant of all further ones

Read = Callable[[RequestRecord], Sequence[float]]  # the values that one request adds


@dataclass(frozen=True, slots=True)
class Row:
    """buckets: None for a counter. has_exemplar: sampled traces become exemplars."""

    name: str
    text: str
    read: Read
    buckets: tuple[float, ...] | None = None
    has_exemplar: bool = False

    def metric(self, label: str, registry: CollectorRegistry) -> Counter | Histogram:
        if self.buckets is None:
            return Counter(self.name, self.text, (label,), registry=registry)
        return Histogram(self.name, self.text, (label,), buckets=self.buckets, registry=registry)


def _tokens(name: str) -> Read:
    """Observes nothing if no token came."""
    return lambda record: () if record.used is None else (getattr(record.used, name),)


def _first_event_s(record: RequestRecord) -> Sequence[float]:
    return () if record.first_event_s is None else (record.first_event_s,)


def _first_event_of_short_prompt_s(record: RequestRecord) -> Sequence[float]:
    is_short = record.used is not None and record.used.prompt_tokens <= SHORT_PROMPT_TOKENS
    return _first_event_s(record) if is_short else ()


def _short_answer_s(record: RequestRecord) -> Sequence[float]:
    if record.used is None or record.result is not Result.COMPLETED:
        return ()
    return (record.generation_s,) if record.used.completion_tokens <= SHORT_ANSWER_TOKENS else ()


def _waited_s(record: RequestRecord) -> Sequence[float]:
    """0 for a request that got a row at once; nothing for one that got none."""
    if (waited_s := record.row_wait_s) is not None:
        return (waited_s,)
    return () if record.first_event_s is None else (0.0,)


OF_MODELS = (
    Row(
        "proxy_prompt_tokens", "Prompt tokens, counted by the engine", read=_tokens("prompt_tokens")
    ),
    Row(
        "proxy_cached_prompt_tokens",
        "Prompt tokens that the engine took from its prefix cache",
        read=_tokens("cached_tokens"),
    ),
    Row(
        "proxy_completion_tokens",
        "Generated tokens, counted by the engine",
        read=_tokens("completion_tokens"),
    ),
    Row(
        "proxy_time_to_first_token_seconds",
        "From request to first event",
        read=_first_event_s,
        buckets=DURATION_BUCKETS_S,
        has_exemplar=True,
    ),
    Row(
        "proxy_request_duration_seconds",
        "From request to last event",
        read=lambda record: (record.generation_s,),
        buckets=DURATION_BUCKETS_S,
        has_exemplar=True,
    ),
    Row(
        "proxy_short_prompt_first_token_seconds",
        f"From request to first event, of prompts with {SHORT_PROMPT_TOKENS} tokens at most",
        read=_first_event_of_short_prompt_s,
        buckets=PROMISED_BUCKETS_S,
    ),
    Row(
        "proxy_short_answer_duration_seconds",
        f"From request to last event, of whole answers with {SHORT_ANSWER_TOKENS} tokens at most",
        read=_short_answer_s,
        buckets=PROMISED_BUCKETS_S,
    ),
    Row(
        "proxy_request_queue_time_seconds",
        "Time that a request waited for a row, in the proxy and in the engine",
        read=_waited_s,
        buckets=DURATION_BUCKETS_S,
    ),
    Row(
        "proxy_request_prompt_tokens",
        "Prompt tokens of a request",
        read=_tokens("prompt_tokens"),
        buckets=TOKEN_BUCKETS,
    ),
    Row(
        "proxy_request_completion_tokens",
        "Generated tokens of a request, all its choices together",
        read=_tokens("completion_tokens"),
        buckets=TOKEN_BUCKETS,
    ),
    Row(
        "proxy_queue_time_seconds",
        "Time that a stream waited for a row of the engine, if the engine reports it",
        read=lambda record: record.engine_queues_s,
        buckets=DURATION_BUCKETS_S,
    ),
    Row(
        "proxy_prefill_time_seconds",
        "From a stream's row to its first token, if the engine reports it",
        read=lambda record: [times.prefill_s for times in record.engine_times],
        buckets=DURATION_BUCKETS_S,
    ),
    Row(
        "proxy_decode_time_seconds",
        "From a stream's first token to its last, if the engine reports it",
        read=lambda record: [times.decode_s for times in record.engine_times],
        buckets=DURATION_BUCKETS_S,
    ),
    Row(
        "proxy_time_per_output_token_seconds",
        "Mean time of a stream's tokens after its first response",
        read=lambda record: record.token_times_s,
        buckets=DURATION_BUCKETS_S,
    ),
)
OF_TENANTS = (
    Row("proxy_tenant_prompt_tokens", "Prompt tokens", read=_tokens("prompt_tokens")),
    Row("proxy_tenant_completion_tokens", "Generated tokens", read=_tokens("completion_tokens")),
    Row(
        "proxy_tenant_queue_time_seconds",
        "Time that a request waited for a row, in the proxy and in the engine",
        read=_waited_s,
        buckets=FEW_BUCKETS_S,
    ),
    Row(
        "proxy_tenant_time_to_first_token_seconds",
        "From request to first event",
        read=_first_event_s,
        buckets=FEW_BUCKETS_S,
    ),
)


class BoundedNames:
    """The first `most` names that callers bring: only they become values of a label.

    Every value makes series that stay until the proxy stops, so their number needs a bound.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def admits(self, name: str) -> bool:
        if name not in self._known and len(self._known) < self._most:
            self._known.add(name)
        return name in self._known


class _Table:
    """The metrics of some rows. What adds to those with one label's value is kept: a lookup costs
    as much as counting.
    """

    def __init__(self, rows: Sequence[Row], label: str, registry: CollectorRegistry) -> None:
        self._metrics = [(row, row.metric(label, registry)) for row in rows]
        self._labeled: dict[str, list[tuple[Read, Callable[..., None], bool]]] = {}

    def settle(self, label: str, record: RequestRecord) -> None:
        labeled = self._labeled.get(label)
        if labeled is None:
            labeled = self._labeled[label] = [
                (row.read, _adding(metric.labels(label)), row.has_exemplar)
                for row, metric in self._metrics
            ]
        trace = record.trace if record.trace is not None and record.trace.is_sampled else None
        for read, add, has_exemplar in labeled:
            for value in read(record):
                if has_exemplar:
                    add(value, trace)
                else:
                    add(value)


def _adding(metric: Counter | Histogram) -> Callable[..., None]:
    return metric.inc if isinstance(metric, Counter) else partial(observe, metric)


class GenerationMetrics:
    """The label `outcome` is a finish reason, an error code, `abandoned` (client disconnected)
    or `server_full` (over MAX_CONCURRENT_REQUESTS).

    registry: of the process' other metrics. tenants: as many have series of their own; all others
    share the tenant `other`.
    """

    def __init__(self, registry: CollectorRegistry, *, tenants: int) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(name, text, ("model",), buckets=DURATION_BUCKETS_S, registry=registry)

        self._tenant_names = BoundedNames(tenants)
        self._models = _Table(OF_MODELS, "model", registry)
        self._tenants = _Table(OF_TENANTS, "tenant", registry)
        requests = counter(
            "proxy_requests", "Generation requests by how they ended", "model", "outcome"
        )
        active = Gauge(
            "proxy_requests_active",
            "Generation requests in progress",
            ("model",),
            registry=registry,
        )
        gaps = histogram(
            "proxy_inter_token_latency_seconds",
            "Time between two responses of an engine stream; each has at least one token",
        )
        self._resent = counter(
            "proxy_requests_resent",
            "Streams that failed before their first token and were sent to Triton again",
            "model",
        )
        self._continued = counter(
            "proxy_streams_continued",
            "Streams that lost their engine after their first token, by what ended it (`lost`, "
            "`stalled`, `drained`, `preempted`) and whether another engine stream `continued` them",
            "model",
            "cause",
            "result",
        )
        self._pauses = histogram(
            "proxy_continuation_pause_seconds",
            "From the end of an engine stream to the first response of the one that continues it",
        )
        self._unbalanced = counter(
            "proxy_unbalanced_tokens",
            "Tokens that an engine counted and nobody is charged for: the prompt of further "
            "`choices`, of the answer behind a `thought`, and of streams that were `abandoned` "
            "before their first token; what was computed again for a stream that was `lost`, "
            "`stalled`, `drained` or `preempted`; the `trial` of an engine that the proxy makes "
            "itself, by Triton's name of the model",
            "model",
            "cause",
        )
        tenant_requests = counter(
            "proxy_tenant_requests",
            "Generation requests by how they ended: `completed`, `refused` (an error that is the "
            "caller's, or a limit), `failed` (an error of ours), `abandoned`",
            "tenant",
            "result",
        )
        # `labels` costs more than counting
        self._requests, self._tenant_requests = (
            cache(requests.labels),
            cache(tenant_requests.labels),
        )
        self._active, self._gaps = cache(active.labels), cache(gaps.labels)

    @contextmanager
    def counted(
        self, record: RequestRecord, request: GenerationRequest, card: ModelCard
    ) -> Iterator[None]:
        """The generation runs as long as the `with`; an exception ends it as failed."""
        tenant = request.tenant or current_caller.get().tenant
        active, gaps = self._active(card.name), self._gaps(card.name)
        error: BaseException | None = None
        active.inc()
        record.generation_began = time.perf_counter()
        record.id, record.model = request.id, card.name  # known while it runs
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            record.end_generation(request, card, error)
            active.dec()
            observe_counts(gaps, record.gaps, record.gaps_s)
            self._models.settle(card.name, record)
            self._requests(card.name, record.outcome).inc()
            self._settle_losses(card.name, record)
            label = tenant if self._tenant_names.admits(tenant) else OTHER
            self._tenants.settle(label, record)
            self._tenant_requests(label, record.result.value).inc()

    def leave_uncharged(self, model: str, why: str, tokens: int) -> None:
        self._unbalanced.labels(model, why).inc(tokens)

    def _settle_losses(self, model: str, record: RequestRecord) -> None:
        for why, tokens in record.uncharged.items():
            self.leave_uncharged(model, why, tokens)
        for stage, late in record.late:
            if stage.error is not None:
                settle = partial(self._settle_late, model, stage.error)
                asyncio.ensure_future(late).add_done_callback(settle)
        if abandoned := record.charged_late:
            has_prompt = record.used is not None and record.used.prompt_tokens > 0
            left = asyncio.gather(*abandoned, return_exceptions=True)
            left.add_done_callback(partial(self._settle_abandoned, model, has_prompt))
        if record.resends:
            self._resent.labels(model).inc(record.resends)
        for cause, pause_s in record.pauses:
            self._continued.labels(model, cause.value, "continued").inc()
            self._pauses.labels(model).observe(pause_s)
        for cause in record.uncontinued:
            self._continued.labels(model, cause.value, "failed").inc()

    def _settle_late(self, model: str, why: str, late: asyncio.Future[Usage]) -> None:
        if not late.cancelled() and late.exception() is None:
            self.leave_uncharged(model, why, late.result().total_tokens)

    def _settle_abandoned(
        self, model: str, has_prompt: bool, late: asyncio.Future[list[Usage | BaseException]]
    ) -> None:
        """Their prompts, of which one is charged where no stream has sent anything."""
        if late.cancelled():
            return
        prompts = [one.prompt_tokens for one in late.result() if isinstance(one, Usage)]
        tokens = sum(prompts) - (0 if has_prompt else max(prompts, default=0))
        self.leave_uncharged(model, "abandoned", tokens)


def observe(histogram: Histogram, value: float, trace: Trace | None = None) -> None:
    """Costs the same for every value; the histogram's own method tries one bucket after another.

    trace: becomes the bucket's exemplar in OpenMetrics, in place of the last one.
    """
    bucket = histogram._buckets[bisect_left(histogram._upper_bounds, value)]
    histogram._sum.inc(value)
    bucket.inc(1)
    if trace is not None:
        bucket.set_exemplar(Exemplar({"trace_id": f"{trace.trace_id:032x}"}, value, time.time()))


def observe_counts(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """Adds values that are already counted for each of the histogram's buckets.

    prometheus_client itself takes values only one by one, which costs a microsecond each.
    """
    histogram._sum.inc(total)
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
