"""Which endpoints serve the same build of a model. Made by a pool, used by the router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.pools.candidate import Candidates
from proxy.pools.endpoint import Endpoint, Served


@dataclass(frozen=True, slots=True)
class Variant:
    """The endpoints that serve one build of a model. Made when they change."""

    served: Mapping[str, Served]
    candidates: Candidates


def variants_of(endpoints: Iterable[Endpoint]) -> dict[int, Variant]:
    """By the identity of the model's facts; of endpoints that get streams."""
    found: dict[int, dict[str, Served]] = {}
    for endpoint in endpoints:
        if endpoint.gets_streams:
            for one in endpoint.served.values():
                found.setdefault(id(one.model.facts), {})[endpoint.name] = one
    return {
        key: Variant(served, Candidates.of(one.candidate for one in served.values()))
        for key, served in found.items()
    }
