"""Shadow deployments for services whose models have none."""

from __future__ import annotations

from proxy.domain.engine import Engine
from proxy.domain.shadow import ShadowResult
from proxy.generation.shadow import ShadowDeployments
from proxy.models.registry import Registry


class Kept:
    """A counter that keeps what it counts."""

    def __init__(self) -> None:
        self.results: list[ShadowResult] = []

    def count(self, result: ShadowResult) -> None:
        self.results.append(result)


def without_shadows(registry: Registry, engine: Engine) -> ShadowDeployments:
    return ShadowDeployments(registry, engine, Kept())
