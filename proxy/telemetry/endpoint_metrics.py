"""Counts what happens on each endpoint of the pools, which report it.

Endpoints come and go, so only so many get series of their own; further ones share one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import (
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    ProxyError,
    ServiceError,
)
from proxy.telemetry.generation_metrics import FEW_BUCKETS_S, BoundedNames, observe

MOST_ENDPOINTS = 500
OTHERS = "others"


class Outcome(str, Enum):
    """How a stream ended. ENDED: with a finish reason. LEFT: closed from our side. LOST: the
    endpoint went away. REFUSED: it answered with an error, such as a prompt that is too long.
    FOREIGN: it handed us another request's answer, which was discarded.
    """

    ENDED = "ended"
    LEFT = "left"
    LOST = "lost"
    REFUSED = "refused"
    FOREIGN = "foreign"


# PyTorch, CUDA's runtime, ONNX Runtime, NumPy, C++
OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|MemoryAllocation|bad_alloc"
    r"|(failed|unable) to allocate",
    re.IGNORECASE,
)


def failure_kind(error: ProxyError) -> str | None:
    """Why an engine failed a stream, as the metric has it; None: it has not failed."""
    if isinstance(error, GuidePending) or not isinstance(error, ServiceError):
        return None
    if OUT_OF_MEMORY.search(error.detail or ""):
        return "out_of_memory"
    if isinstance(error, ForeignAnswer):
        return "foreign"
    return "unavailable" if isinstance(error, ModelUnavailable) else "failed"


class Place(NamedTuple):
    pool: str
    endpoint: str


class EndpointMetrics:
    """registry: of the process' other metrics. leave_uncharged: see GenerationMetrics."""

    def __init__(
        self, registry: CollectorRegistry, leave_uncharged: Callable[[str, str, int], None]
    ) -> None:
        self._leave_uncharged = leave_uncharged
        labels = ("pool", "endpoint")
        streams = Counter(
            "proxy_endpoint_streams",
            "Streams by their end: `ended`, `left` (closed by us), `lost`, `refused`, `foreign`",
            (*labels, "outcome"),
            registry=registry,
        )
        self._failures = Counter(
            "proxy_engine_failures",
            "Streams that an engine failed, by kind: `out_of_memory` (it says so), `unavailable` "
            "(Triton or the engine's process is gone), `foreign`, `failed`",
            (*labels, "kind"),
            registry=registry,
        )
        tokens = Counter(
            "proxy_endpoint_tokens", "Tokens that an endpoint has sent", labels, registry=registry
        )
        ttft = Histogram(
            "proxy_endpoint_time_to_first_token_seconds",
            "From the choice of the endpoint to its first response",
            labels,
            buckets=FEW_BUCKETS_S,
            registry=registry,
        )
        self._expected_cached = Counter(
            "proxy_endpoint_expected_cached_tokens",
            "Prompt tokens that routing expected in the endpoint's prefix cache",
            labels,
            registry=registry,
        )
        self._cached = Counter(
            "proxy_endpoint_cached_tokens",
            "Prompt tokens that came from the endpoint's prefix cache",
            labels,
            registry=registry,
        )
        self._ejections = Counter(
            "proxy_endpoint_ejections", "Ejections by the breaker", labels, registry=registry
        )
        self._states = Gauge(
            "proxy_pool_endpoints",
            "Endpoints by state",
            ("pool", "state"),
            registry=registry,
        )
        # `labels` costs more than counting
        self._streams, self._tokens = cache(streams.labels), cache(tokens.labels)
        self._ttft = cache(ttft.labels)
        self._names = BoundedNames(MOST_ENDPOINTS)

    def began(self, place: Place, first_token_s: float, expected: int, cached: int) -> None:
        """expected, cached: tokens of the prompt, as routing foresaw and the engine found them."""
        place = self._bounded(place)
        observe(self._ttft(*place), first_token_s)
        if expected:
            self._expected_cached.labels(*place).inc(expected)
        if cached:
            self._cached.labels(*place).inc(cached)

    def ended(self, place: Place, outcome: Outcome, tokens: int) -> None:
        place = self._bounded(place)
        self._streams(*place, outcome.value).inc()
        self._tokens(*place).inc(tokens)

    def failed(self, place: Place, error: ProxyError) -> None:
        if (kind := failure_kind(error)) is not None:
            self._failures.labels(*self._bounded(place), kind).inc()

    def tried(self, triton_model: str, tokens: int) -> None:
        """tokens: that an engine counted for a generation of the proxy's own."""
        self._leave_uncharged(triton_model, "trial", tokens)

    def ejected(self, place: Place) -> None:
        self._ejections.labels(*self._bounded(place)).inc()

    def counted(self, pool: str, endpoints: Mapping[EndpointState, int]) -> None:
        """How many endpoints are in each state now; a state that is missing has none."""
        for state in EndpointState:
            self._states.labels(pool, state.value).set(endpoints.get(state, 0))

    def _bounded(self, place: Place) -> Place:
        return place if self._names.admits(" ".join(place)) else Place(place.pool, OTHERS)
