"""Counts and times generations, by model and by tenant. Called by the service.

The values are those of the request's record, when its generation has ended.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.samples import Exemplar

from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord, Trace
from proxy.domain.request import GenerationRequest

# For metrics with one series for each endpoint or tenant.
FEW_BUCKETS_S = (0.001, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0)
TOKEN_BUCKETS = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
)
OTHER = "other"  # the tenant of all further ones


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


class GenerationMetrics:
    """The label `outcome` is a finish reason, an error code, or `abandoned` (client disconnected).

    registry: of the process' other metrics. tenants: as many have series of their own; all others
    share the tenant `other`.
    """

    def __init__(self, registry: CollectorRegistry, *, tenants: int) -> None:
        self._registry = registry
        self._tenant_names = BoundedNames(tenants)
        self._models: dict[str, _Model] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._count()
        self._time_requests()
        self._time_streams()
        self._count_tenants()

    @contextmanager
    def counted(
        self, record: RequestRecord, request: GenerationRequest, card: ModelCard
    ) -> Iterator[None]:
        """The generation runs as long as the `with`; an exception ends it as failed."""
        model, tenant = self._model(card.name), current_caller.get().tenant
        error: BaseException | None = None
        model.active.inc()
        record.generation_began = time.perf_counter()
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            record.end_generation(request, card.name, error)
            model.settle(record)
            self.tenant(tenant).settle(record)

    def _model(self, name: str) -> _Model:
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = _Model(self, name)
        return found

    def tenant(self, name: str) -> _Tenant:
        label = name if self._tenant_names.admits(name) else OTHER
        found = self._tenants.get(label)
        if found is None:
            found = self._tenants[label] = _Tenant(self, label)
        return found

    def _count(self) -> None:
        self.requests = self._counter(
            "proxy_requests", "Generation requests by how they ended", "model", "outcome"
        )
        self.active = Gauge(
            "proxy_requests_active",
            "Generation requests in progress",
            ("model",),
            registry=self._registry,
        )
        self.prompt_tokens = self._counter(
            "proxy_prompt_tokens", "Prompt tokens, counted by the engine", "model"
        )
        self.cached_tokens = self._counter(
            "proxy_cached_prompt_tokens",
            "Prompt tokens that the engine took from its prefix cache",
            "model",
        )
        self.completion_tokens = self._counter(
            "proxy_completion_tokens", "Generated tokens, counted by the engine", "model"
        )
        self.resent = self._counter(
            "proxy_requests_resent",
            "Streams that failed before their first token and were sent to Triton again",
            "model",
        )
        self.continued = self._counter(
            "proxy_streams_continued",
            "Streams that lost their engine after their first token, by what ended it (`lost`, "
            "`stalled`, `drained`, `preempted`) and whether another engine stream `continued` them",
            "model",
            "cause",
            "result",
        )

    def _time_requests(self) -> None:
        self.ttft = self._histogram(
            "proxy_time_to_first_token_seconds", "From request to first event"
        )
        self.duration = self._histogram(
            "proxy_request_duration_seconds", "From request to last event"
        )
        self.request_queue = self._histogram(
            "proxy_request_queue_time_seconds",
            "Time that a request waited for a row, in the proxy and in the engine",
        )
        self.prompt_length = self._histogram(
            "proxy_request_prompt_tokens", "Prompt tokens of a request", TOKEN_BUCKETS
        )
        self.completion_length = self._histogram(
            "proxy_request_completion_tokens",
            "Generated tokens of a request, all its choices together",
            TOKEN_BUCKETS,
        )

    def _time_streams(self) -> None:
        self.queue = self._histogram(
            "proxy_queue_time_seconds",
            "Time that a stream waited for a row of the engine, if the engine reports it",
        )
        self.prefill = self._histogram(
            "proxy_prefill_time_seconds",
            "From a stream's row to its first token, if the engine reports it",
        )
        self.decode = self._histogram(
            "proxy_decode_time_seconds",
            "From a stream's first token to its last, if the engine reports it",
        )
        self.continuation_pause = self._histogram(
            "proxy_continuation_pause_seconds",
            "From the end of an engine stream to the first response of the one that continues it",
        )
        self.gaps = self._histogram(
            "proxy_inter_token_latency_seconds",
            "Time between two responses of an engine stream; each has at least one token",
        )
        self.token_time = self._histogram(
            "proxy_time_per_output_token_seconds",
            "Mean time of a stream's tokens after its first response",
        )

    def _count_tenants(self) -> None:
        self.tenant_requests = self._counter(
            "proxy_tenant_requests",
            "Generation requests by how they ended: `completed`, `refused` (an error that is the "
            "caller's, or a limit), `failed` (an error of ours), `abandoned`",
            "tenant",
            "result",
        )
        self.tenant_prompt_tokens = self._counter(
            "proxy_tenant_prompt_tokens", "Prompt tokens", "tenant"
        )
        self.tenant_completion_tokens = self._counter(
            "proxy_tenant_completion_tokens", "Generated tokens", "tenant"
        )
        self.tenant_queue = self._histogram(
            "proxy_tenant_queue_time_seconds",
            "Time that a request waited for a row, in the proxy and in the engine",
            FEW_BUCKETS_S,
            label="tenant",
        )
        self.tenant_ttft = self._histogram(
            "proxy_tenant_time_to_first_token_seconds",
            "From request to first event",
            FEW_BUCKETS_S,
            label="tenant",
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _histogram(
        self,
        name: str,
        text: str,
        buckets: tuple[float, ...] = DURATION_BUCKETS_S,
        *,
        label: str = "model",
    ) -> Histogram:
        return Histogram(name, text, (label,), buckets=buckets, registry=self._registry)


class _Model:
    """The metrics with one model's label, kept because a lookup costs as much as counting."""

    def __init__(self, metrics: GenerationMetrics, model: str) -> None:
        self._name = model
        self._metrics = metrics
        self.active = metrics.active.labels(model)
        self._duration = metrics.duration.labels(model)
        self._ttft = metrics.ttft.labels(model)
        self._prompt_tokens = metrics.prompt_tokens.labels(model)
        self._cached_tokens = metrics.cached_tokens.labels(model)
        self._completion_tokens = metrics.completion_tokens.labels(model)
        self._prompt_length = metrics.prompt_length.labels(model)
        self._completion_length = metrics.completion_length.labels(model)
        self._request_queue = metrics.request_queue.labels(model)
        self._queue = metrics.queue.labels(model)
        self._prefill = metrics.prefill.labels(model)
        self._decode = metrics.decode.labels(model)
        self._gaps = metrics.gaps.labels(model)
        self._token_time = metrics.token_time.labels(model)

    def settle(self, record: RequestRecord) -> None:
        """Counts a generation that has ended."""
        self.active.dec()
        self._metrics.requests.labels(self._name, record.outcome).inc()
        trace = record.trace if record.trace is not None and record.trace.is_sampled else None
        observe(self._duration, record.generation_s, trace)
        if record.first_event_s is not None:
            observe(self._ttft, record.first_event_s, trace)
        if (waited_s := _waited_s(record)) is not None:
            observe(self._request_queue, waited_s)
        if (used := record.used) is not None:
            self._prompt_tokens.inc(used.prompt_tokens)
            if used.cached_tokens:
                self._cached_tokens.inc(used.cached_tokens)
            self._completion_tokens.inc(used.completion_tokens)
            observe(self._prompt_length, used.prompt_tokens)
            observe(self._completion_length, used.completion_tokens)
        self._settle_streams(record)
        self._settle_losses(record)

    def _settle_streams(self, record: RequestRecord) -> None:
        for queue_s in record.engine_queues_s:
            observe(self._queue, queue_s)
        for times in record.engine_times:
            observe(self._prefill, times.prefill_s)
            observe(self._decode, times.decode_s)
        gaps_s = 0.0
        for pace in record.paces:
            gaps_s += pace.gaps_s
            if (token_s := pace.token_s) is not None:
                observe(self._token_time, token_s)
        observe_counts(self._gaps, record.gaps, gaps_s)

    def _settle_losses(self, record: RequestRecord) -> None:
        metrics, model = self._metrics, self._name
        if record.resends:
            metrics.resent.labels(model).inc(record.resends)
        for cause, pause_s in record.pauses:
            metrics.continued.labels(model, cause.value, "continued").inc()
            metrics.continuation_pause.labels(model).observe(pause_s)
        for cause in record.uncontinued:
            metrics.continued.labels(model, cause.value, "failed").inc()


class _Tenant:
    """As _Model, for one tenant's label."""

    def __init__(self, metrics: GenerationMetrics, label: str) -> None:
        self._label = label
        self._requests = metrics.tenant_requests
        self._prompt_tokens = metrics.tenant_prompt_tokens.labels(label)
        self._completion_tokens = metrics.tenant_completion_tokens.labels(label)
        self._queue = metrics.tenant_queue.labels(label)
        self._ttft = metrics.tenant_ttft.labels(label)

    def settle(self, record: RequestRecord) -> None:
        self._requests.labels(self._label, record.result.value).inc()
        if record.used is not None:
            self._prompt_tokens.inc(record.used.prompt_tokens)
            self._completion_tokens.inc(record.used.completion_tokens)
        if (waited_s := _waited_s(record)) is not None:
            observe(self._queue, waited_s)
        if record.first_event_s is not None:
            observe(self._ttft, record.first_event_s)


def _waited_s(record: RequestRecord) -> float | None:
    """0 for a request that got a row at once; None for one that got none."""
    waited_s = record.row_wait_s
    return 0.0 if waited_s is None and record.first_event_s is not None else waited_s


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
