"""The share of each deployment, as operators see it."""

from __future__ import annotations

import pytest

from build_engines.deployments import CanaryEntry, DeploymentEntry
from proxy.api.pools.pool_bodies import DeploymentAnswer, deployment_bodies
from proxy.models.deployments import DeploymentPlan
from proxy.pools.memory_decisions import MemoryDecisions

BLUE, RED = DeploymentEntry(name="blue", weight=3), DeploymentEntry(name="red")
GREEN = DeploymentEntry(name="green", canary=CanaryEntry(percent=20))
BY_TENANT = DeploymentEntry(name="green", canary=CanaryEntry(tenants=("a",)))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("deployments", "weights", "shares"),
    [
        # a canary has its percentage, and weights divide the rest
        ((BLUE, RED, GREEN), None, [0.6, 0.2, 0.2]),
        # weights of an operator replace the percentage
        ((BLUE, RED, GREEN), {"blue": 1.0, "red": 0.0, "green": 3.0}, [0.25, 0.0, 0.75]),
        # a canary of a rule alone has no share
        ((BLUE, BY_TENANT), None, [1.0, 0.0]),
    ],
)
async def test_shares(deployments, weights, shares):
    decisions = MemoryDecisions()
    if weights is not None:
        await decisions.set_weights("chat", weights, actor="me")
    plans = {"chat": DeploymentPlan(deployments=deployments)}
    found = [DeploymentAnswer(**each) for each in deployment_bodies(plans, decisions)]
    assert [each.share for each in found] == shares
