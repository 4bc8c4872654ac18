"""Pools that TRITON_URL and models.yaml name."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engines import models_file
from build_engines.models_file import ModelsFileError
from proxy.pools import named_pools
from proxy.pools.memory_decisions import MemoryDecisions
from proxy.settings import Settings
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.telemetry.metrics import Metrics

EAST = "pools: {east: {endpoints: 'grpc://10.0.0.1:8001', secret_env: EAST_SECRET}}\n"
REMOTE = "models: {m: {deployments: [{name: a, pool: east}]}}\n"
SECRETS = {"EAST_SECRET": "a-secret-of-the-east"}


@pytest.fixture
def pools(tmp_path: Path):
    """pools(models.yaml, environment, **settings) -> the names of the pools."""

    def names(text: str, environment: dict[str, str] | None = None, **settings):
        path = tmp_path / "models.yaml"
        path.write_text(text)
        metrics, found = Metrics(), models_file.load(path)
        counter = EndpointMetrics(metrics.registry, metrics.generations.leave_uncharged)
        decisions = MemoryDecisions()
        made = named_pools.pool_set(
            Settings(**settings), found, environment or {}, counter, decisions
        )
        return sorted(made.pools)

    return names


def test_the_pool_default_is_there_if_a_model_may_be_in_it(pools):
    assert pools(EAST + REMOTE, SECRETS) == ["east"]
    assert pools(EAST + REMOTE, SECRETS, triton_url="a:8001") == ["default", "east"]
    own = EAST + REMOTE.replace("}]}}", "}]}, own: {weights: w}}")
    assert pools(own, SECRETS) == ["default", "east"]


def test_a_secret_that_is_not_set_and_two_places_for_the_pool_default_are_refused(pools):
    with pytest.raises(ModelsFileError, match=r"pools.east.secret_env: .* EAST_SECRET is not set"):
        pools(EAST + REMOTE)
    own = "pools: {default: {endpoints: 'grpc://a:8001'}}\nmodels: {m: {weights: w}}"
    assert pools(own) == ["default"]
    with pytest.raises(ModelsFileError, match="remove one of them"):
        pools(own, triton_url="grpc://b:8001")
