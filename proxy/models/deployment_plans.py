"""models.yaml -> the deployment plan of each public model. Called by `app` and `policy_watch`."""

from __future__ import annotations

from collections.abc import Mapping

from triton_openai.build_engines.deployment_entries import DeploymentEntry
from triton_openai.build_engines.models_file import ModelEntry
from triton_openai.proxy.models.deployments import (
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


def plan(entry: ModelEntry) -> DeploymentPlan:
    shadow = entry.shadow
    return DeploymentPlan(
        deployments=tuple(map(_deployment, entry.deployments)) or DEFAULT_PLAN.deployments,
        sticky=Sticky(entry.sticky),
        shadow=shadow and Shadow(deployment=shadow.deployment, percent=shadow.percent),
        fallback=entry.fallback,
    )


def _deployment(entry: DeploymentEntry) -> Deployment:
    header = entry.canary.header
    return Deployment(
        name=entry.name,
        pool=entry.pool,
        triton_model=entry.model,
        version=entry.version,
        weight=entry.share_weight,
        rules=CanaryRules(
            percent=entry.canary.percent or 0.0,
            tenants=entry.canary.tenants,
            header=header and (header.name, header.value),
        ),
    )
