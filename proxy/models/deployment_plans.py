"""models.yaml -> the deployment plan of each public model. Called by `app` and `policy_watch`."""

from __future__ import annotations

from collections.abc import Mapping

from build_engines.deployment_entries import CanaryEntry, DeploymentEntry
from build_engines.models_file import ModelEntry
from proxy.models.deployments import (
    CanaryRules,
    Deployment,
    DeploymentPlan,
    Shadow,
    Sticky,
)

DEFAULT_PLAN = DeploymentPlan()


def plans(models: Mapping[str, ModelEntry]) -> dict[str, DeploymentPlan]:
    """By public name. A model without an entry has DEFAULT_PLAN."""
    return {name: plan(entry) for name, entry in models.items()}


def of_pool(pool: str) -> DeploymentPlan:
    """The plan of a model that models.yaml does not have."""
    return DeploymentPlan(deployments=(Deployment(pool=pool),))


def plan(entry: ModelEntry) -> DeploymentPlan:
    return DeploymentPlan(
        deployments=tuple(map(_deployment, entry.deployments)) or DEFAULT_PLAN.deployments,
        sticky=Sticky(entry.sticky),
        shadow=None if entry.shadow is None else Shadow(**entry.shadow.model_dump()),
        fallback=entry.fallback,
    )


def _deployment(entry: DeploymentEntry) -> Deployment:
    return Deployment(
        name=entry.name,
        pool=entry.pool,
        triton_model=entry.model,
        version=entry.version,
        weight=entry.share_weight,
        rules=_rules(entry.canary),
    )


def _rules(entry: CanaryEntry) -> CanaryRules:
    header = entry.header
    return CanaryRules(
        percent=entry.percent or 0.0,
        tenants=entry.tenants,
        header=None if header is None else (header.name, header.value),
    )
