"""Triton servers that serve models together: a pool's endpoints, and the ports to them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from proxy.domain.errors import Conflict, ErrorCode, echoed

DEFAULT_POOL = "default"
KEPT_CHANGES = 20
Weights = dict[str, float]
MOST_DRAINED = 1000  # addresses; one that no source lists any more counts, too


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """address: `host:port` of Triton's gRPC port, an IPv6 host in brackets.

    metrics_port: of its metrics, on the same host; None for the pool's own.
    """

    address: str
    metrics_port: int | None = None


class EndpointSource(Protocol):
    """Where a pool's endpoints are found: a list, DNS, Kubernetes, etcd, a file."""

    def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        """All endpoints as soon as they are known, then all of them again with every change.

        Never ends and never raises: while the source cannot be read, it logs that once, tries
        again with growing pauses, and the last known endpoints remain. Closing it ends the watch.
        """
        ...


class EndpointState(str, Enum):
    """CONNECTING: not reached yet. NOT_READY: reached, but Triton or a model is not ready.

    EJECTED: by its circuit breaker. DRAINING: gets no new streams, and some still run.
    """

    CONNECTING = "connecting"
    READY = "ready"
    NOT_READY = "not_ready"
    EJECTED = "ejected"
    DRAINING = "draining"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What an endpoint's engines say of themselves, over all of its models. None: not reported.

    waiting: requests without a row. running: requests with one. kv_in_use: share of the KV cache,
    0 to 1. is_stale: the numbers are older than three seconds, so the endpoint counts as full.
    """

    waiting: int | None = None
    running: int | None = None
    kv_in_use: float | None = None
    is_stale: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStatus:
    """One endpoint as operators see it. Streams and tokens: of this process, sent and not ended.

    reason: why it is not READY. models: Triton's names. ejected_for_s: what is left of it.
    """

    pool: str
    address: str
    state: EndpointState
    reason: str | None
    models: tuple[str, ...]
    streams: int
    outstanding_tokens: int
    load: EngineLoad
    ejections: int
    ejected_for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointResult:
    """What one endpoint answered to a change; error is None where it did it."""

    pool: str
    address: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightHistory:
    """current: by deployment; None: those of models.yaml. earlier: the oldest first, at most 20."""

    current: Weights | None = None
    earlier: tuple[Weights | None, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.current is None and not self.earlier

    def changed(self, weights: Mapping[str, float]) -> WeightHistory:
        """With other weights. Equal ones are not a change, so a rollback never lands on them."""
        if self.current == weights:
            return self
        earlier = (*self.earlier, self.current)[-KEPT_CHANGES:]
        return WeightHistory(current=dict(weights), earlier=earlier)

    def rolled_back(self, model: str) -> WeightHistory:
        """Without the last change. Raises Conflict: none is kept."""
        if not self.earlier:
            raise Conflict(
                f"There is no earlier change of the weights of the model {echoed(model)} to roll "
                f"back to. The last {KEPT_CHANGES} changes are kept.",
                code=ErrorCode.NO_EARLIER_WEIGHTS,
                param="model",
            )
        return WeightHistory(current=self.earlier[-1], earlier=self.earlier[:-1])


def too_many_drained() -> Conflict:
    return Conflict(
        f"{MOST_DRAINED} endpoints are drained, which is the most that are kept: undrain those "
        "that are gone.",
        code=ErrorCode.TOO_MANY_DECISIONS,
        param="address",
    )


class Decisions(Protocol):
    """What operators decided while proxies run. Every proxy of a store obeys it within a second.

    drained: addresses that get no new streams. weights: by public model and deployment, in place of
    those of models.yaml. A change raises StoreUnavailable if it could not be kept.
    """

    @property
    def drained(self) -> frozenset[str]: ...

    def weights(self, model: str) -> Weights | None:
        """None: those of models.yaml."""
        ...

    async def drain(self, address: str, *, actor: str) -> None: ...

    async def undrain(self, address: str, *, actor: str) -> None: ...

    async def set_weights(self, model: str, weights: Weights, *, actor: str) -> None: ...

    async def roll_back(self, model: str, *, actor: str) -> Weights | None:
        """To the weights before the last change; returns them. Raises Conflict: there are none."""
        ...


class AuditTrail(Protocol):
    """Where it is kept what operators did that changes nothing in a store."""

    async def note(
        self, action: str, object: str, *, actor: str, details: Mapping[str, Any]
    ) -> None:
        """Keeps one entry. details: JSON's values. Raises StoreUnavailable: it was not kept."""
        ...


class EndpointRefused(Exception):
    """Triton did not do what was asked. The message says why, for operators."""


class Pools(Protocol):
    """All pools of one process."""

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """Sorted by pool and address."""
        ...

    async def load_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]:
        """Has every endpoint of these pools load a model of its repository; of all by default."""
        ...

    async def unload_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]: ...
