"""Doubles of the ports of pools: endpoints that are given, decisions and audit in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from proxy.domain.endpoints import (
    EndpointResult,
    EndpointState,
    EndpointStatus,
    EngineLoad,
    Weights,
)
from proxy.domain.health import Concern
from proxy.pools.memory_decisions import MemoryDecisions
from proxy.pools.pool import Pool


def endpoint(address: str, **fields: Any) -> EndpointStatus:
    usual: dict[str, Any] = {
        "pool": "default",
        "address": address,
        "state": EndpointState.READY,
        "reason": None,
        "models": ("demo",),
        "streams": 0,
        "outstanding_tokens": 0,
        "load": EngineLoad(waiting=0, running=1, kv_in_use=0.25, is_stale=False),
        "ejections": 0,
        "ejected_for_s": 0.0,
    }
    return EndpointStatus(**{**usual, **fields})


class DecisionsInMemory(MemoryDecisions):
    """calls: (verb, object, actor), in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, str]] = []

    async def drain(self, address: str, *, actor: str) -> None:
        self.calls.append(("drain", address, actor))
        await super().drain(address, actor=actor)

    async def undrain(self, address: str, *, actor: str) -> None:
        self.calls.append(("undrain", address, actor))
        await super().undrain(address, actor=actor)

    async def set_weights(self, model: str, weights: Weights, *, actor: str) -> None:
        self.calls.append(("set_weights", model, actor))
        await super().set_weights(model, weights, actor=actor)

    async def roll_back(self, model: str, *, actor: str) -> Weights | None:
        self.calls.append(("roll_back", model, actor))
        return await super().roll_back(model, actor=actor)


class FixedPools:
    """statuses: the endpoints. A drained one is DRAINING while it has streams, then DRAINED.

    failing: addresses that refuse to load. calls: (verb, model, pools), in order.
    """

    def __init__(self, decisions: DecisionsInMemory, *statuses: EndpointStatus) -> None:
        self.statuses = list(statuses)
        self.pools: dict[str, Pool] = {}  # of which queues take their capacities
        self.changed = asyncio.Event()
        self.failing: set[str] = set()
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []
        self._decisions = decisions

    def concerns(self) -> list[Concern]:
        return []

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        return tuple(map(self._seen, self.statuses))

    def _seen(self, status: EndpointStatus) -> EndpointStatus:
        if status.address not in self._decisions.drained:
            return status
        state = EndpointState.DRAINING if status.streams else EndpointState.DRAINED
        return replace(status, state=state)

    async def load_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]:
        return self._results("load", model, pools)

    async def unload_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]:
        return self._results("unload", model, pools)

    def _results(self, verb: str, model: str, pools: Collection[str]) -> tuple[EndpointResult, ...]:
        self.calls.append((verb, model, tuple(pools)))
        return tuple(
            EndpointResult(
                pool=each.pool,
                address=each.address,
                error="out of memory" if each.address in self.failing else None,
            )
            for each in self.statuses
            if not pools or each.pool in pools
        )


class AuditInMemory:
    """entries: (action, object, actor, details). fault: what a note raises."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str, Mapping[str, Any]]] = []
        self.fault: Exception | None = None

    async def note(
        self, action: str, object: str, *, actor: str, details: Mapping[str, Any]
    ) -> None:
        if self.fault is not None:
            raise self.fault
        self.entries.append((action, object, actor, details))
