from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.api.pools.pool_bodies import DeploymentAnswer, deployment_bodies
from tests.doubles.pools import DecisionsInMemory, FixedDeployments, deployment

BLUE = deployment("chat", "blue", 3.0)
RED = deployment("chat", "red", 1.0)
GREEN = replace(deployment("chat", "green", 0.0), percent=20.0)


@pytest.fixture
def decisions() -> DecisionsInMemory:
    return DecisionsInMemory()


def shares(decisions: DecisionsInMemory) -> dict[str, float]:
    found = [*deployment_bodies(FixedDeployments(BLUE, RED, GREEN), decisions)]
    assert [DeploymentAnswer(**each).name for each in found] == ["blue", "red", "green"]
    return {each["name"]: each["share"] for each in found}


def test_a_canary_has_its_percentage_and_weights_divide_the_rest(decisions):
    assert shares(decisions) == {"blue": 0.6, "red": 0.2, "green": 0.2}


@pytest.mark.anyio
async def test_weights_of_an_operator_replace_the_percentage(decisions):
    await decisions.set_weights("chat", {"blue": 1.0, "red": 0.0, "green": 3.0}, actor="me")
    assert shares(decisions) == {"blue": 0.25, "red": 0.0, "green": 0.75}


def test_a_canary_of_a_header_alone_has_no_share(decisions):
    rule = replace(GREEN, percent=0.0)
    found = deployment_bodies(FixedDeployments(BLUE, rule), decisions)
    assert [each["share"] for each in found] == [1.0, 0.0]
