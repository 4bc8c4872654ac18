"""What models.yaml says of deployments arrives in the plan."""

from __future__ import annotations

from build_engines.models_file import ModelsFile
from proxy.models.deployments import (
    DEFAULT_PLAN,
    CanaryRules,
    Deployment,
    DeploymentPlan,
    Shadow,
    Sticky,
    plan_of,
)


def found(entry: dict) -> DeploymentPlan:
    models = {"m": entry, "small": {"runtime": "remote"}}
    return plan_of(ModelsFile.model_validate({"models": models, "pools": POOLS}).models["m"])


POOLS = {"east": {"endpoints": "grpc://h:8001"}}


def test_a_model_that_names_no_deployment_has_the_default_plan():
    assert found({"runtime": "remote"}) == DEFAULT_PLAN


def test_every_field_of_an_entry_arrives():
    header = {"name": "X-Trial", "value": "on"}
    canary = {"percent": 5, "tenants": ["a*"], "header": header}
    blue = {"name": "blue", "pool": "east", "model": "v1", "version": 4, "weight": 2}
    entry = {
        "deployments": [blue, {"name": "green", "canary": canary}],
        "sticky": "conversation",
        "shadow": {"deployment": "green", "percent": 1},
        "fallback": "small",
    }
    rules = CanaryRules(percent=5, tenants=("a*",), header=("x-trial", "on"))
    assert found(entry) == DeploymentPlan(
        deployments=(
            Deployment(name="blue", pool="east", triton_model="v1", version=4, weight=2),
            Deployment(name="green", weight=0, rules=rules),
        ),
        sticky=Sticky.CONVERSATION,
        shadow=Shadow(deployment="green", percent=1),
        fallback="small",
    )
