"""The deployments of models.yaml, for operators. Implements domain.configured_deployments."""

from __future__ import annotations

from proxy.domain.configured_deployments import ConfiguredDeployment
from proxy.models import deployment_plans
from proxy.models.registry import Registry


class ListedDeployments:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def deployments(self) -> tuple[ConfiguredDeployment, ...]:
        """As models.yaml says now, which may have changed since the start."""
        return tuple(
            ConfiguredDeployment(
                model=name,
                name=one.name,
                pool=one.pool,
                triton_model=one.triton_model or name,
                version=None if one.version is None else str(one.version),
                weight=one.weight,
                percent=one.rules.percent,
            )
            for name, entry in self._registry.table.policy.items()
            for one in deployment_plans.plan(entry).deployments
        )
