"""The few metrics with one tenant's label. Made by `metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from proxy.telemetry.bounded_names import OTHER, BoundedNames
from proxy.telemetry.buckets import FEW_BUCKETS_S
from proxy.telemetry.distribution_metrics import observe
from proxy.telemetry.request_figures import RequestFigures

LABELS = ("tenant",)


class TenantMetrics:
    """names: the tenants with series of their own; all others share the tenant `other`."""

    def __init__(self, registry: CollectorRegistry, names: BoundedNames) -> None:
        self._names = names
        self._tenants: dict[str, _Tenant] = {}
        self.requests = Counter(
            "proxy_tenant_requests",
            "Generation requests by how they ended: `completed`, `refused` (an error that is the "
            "caller's, or a limit), `failed` (an error of ours), `abandoned`",
            (*LABELS, "result"),
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "proxy_tenant_prompt_tokens", "Prompt tokens", LABELS, registry=registry
        )
        self.completion_tokens = Counter(
            "proxy_tenant_completion_tokens", "Generated tokens", LABELS, registry=registry
        )
        self.queue = Histogram(
            "proxy_tenant_queue_time_seconds",
            "Time that a request waited for a row, in the proxy and in the engine",
            LABELS,
            buckets=FEW_BUCKETS_S,
            registry=registry,
        )
        self.ttft = Histogram(
            "proxy_tenant_time_to_first_token_seconds",
            "From request to first event",
            LABELS,
            buckets=FEW_BUCKETS_S,
            registry=registry,
        )

    def settle(self, tenant: str, figures: RequestFigures) -> None:
        label = tenant if self._names.admits(tenant) else OTHER
        found = self._tenants.get(label)
        if found is None:
            found = self._tenants[label] = _Tenant(self, label)
        found.settle(figures)


class _Tenant:
    """The metrics with one label, kept because a lookup costs as much as counting."""

    def __init__(self, metrics: TenantMetrics, label: str) -> None:
        self._label = label
        self._requests = metrics.requests
        self._results: dict[str, Counter] = {}
        self._prompt_tokens = metrics.prompt_tokens.labels(label)
        self._completion_tokens = metrics.completion_tokens.labels(label)
        self._queue = metrics.queue.labels(label)
        self._ttft = metrics.ttft.labels(label)

    def settle(self, figures: RequestFigures) -> None:
        result = figures.result.value
        counter = self._results.get(result)
        if counter is None:
            counter = self._results[result] = self._requests.labels(self._label, result)
        counter.inc()
        if figures.usage is not None:
            self._prompt_tokens.inc(figures.usage.prompt_tokens)
            self._completion_tokens.inc(figures.usage.completion_tokens)
        if (waited_s := figures.waited_s) is not None:
            observe(self._queue, waited_s)
        if figures.first_event_s is not None:
            observe(self._ttft, figures.first_event_s)
