"""proxy_model_info: which Triton models serve a public model, so that both sides' metrics join."""

from __future__ import annotations

from dataclasses import replace

from build_engines.deployments import DeploymentEntry
from build_engines.models_file import ModelEntry
from proxy.domain.model import LoadedModel
from proxy.models.model_info import ModelInfo
from proxy.models.registry import Registry
from tests.doubles.engine import FACTS

NEW = DeploymentEntry(name="new", model="chat-v2", pool="west")
POLICY = {"chat": ModelEntry(deployments=(DeploymentEntry(name="old"), NEW))}


def places(registry: Registry) -> set[tuple[str, ...]]:
    [family] = ModelInfo(registry).collect()
    assert {(sample.name, sample.value) for sample in family.samples} <= {("proxy_model_info", 1)}
    labels = ("model", "pool", "triton_model")
    return {tuple(sample.labels[name] for name in labels) for sample in family.samples}


def test_every_deployment_and_adapter_names_its_triton_model():
    registry = Registry(POLICY)
    registry.serve(
        [
            LoadedModel(name="chat", facts=FACTS),
            LoadedModel(name="chat-v2", pool="west", facts=FACTS),
            LoadedModel(name="tuned", facts=replace(FACTS, adapters=("poet",))),
        ]
    )
    assert places(registry) == {
        ("chat", "default", "chat"),
        ("chat", "west", "chat-v2"),
        ("tuned", "default", "tuned"),
        ("poet", "default", "tuned"),
    }


def test_before_a_model_is_known_there_is_none():
    assert places(Registry(POLICY)) == set()
