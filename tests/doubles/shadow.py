"""Shadow traffic for services whose models have no shadows."""

from __future__ import annotations

from proxy.domain.engine import Engine
from proxy.generation.shadow import ShadowTraffic
from proxy.models.registry import Registry


def without_shadows(registry: Registry, engine: Engine) -> ShadowTraffic:
    return ShadowTraffic(registry, engine, lambda result: None)
