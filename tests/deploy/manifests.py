"""The Kubernetes manifests of docker/kubernetes, taken apart: pods, containers, settings."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.places import DOCKER, documents, objects

KUBERNETES = DOCKER / "kubernetes"
VERSION = "1.33"
OLDEST = "1.30"  # by docs/deployment.md
OVERLAYS = ("single-node", "multi-node")
# By the documentation of KEDA 2.22: its ScaledObject, and the scaler `prometheus`.
SCALED = {"scaleTargetRef", "pollingInterval", "cooldownPeriod", "initialCooldownPeriod"} | {
    *("idleReplicaCount", "minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers")
}
PROMETHEUS_TRIGGER = {"serverAddress", "query", "threshold", "activationThreshold"}
GROUP_SCHEMA = json.loads(Path(__file__).with_name("leaderworkerset.schema.json").read_text())


def rendered(overlay: str, kubernetes: Path = KUBERNETES) -> list[dict[str, Any]]:
    command = ["kubectl", "kustomize", kubernetes / overlay]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def rendered_with(overlay: str, component: str, folder: Path) -> list[dict[str, Any]]:
    """With one of the components, as an operator adds it. folder: for a copy."""
    copy = folder / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    path = copy / overlay / "kustomization.yaml"
    path.write_text(f"{path.read_text()}components: [{component}]\n")
    return rendered(overlay, copy)


def validate(thing: dict[str, Any], version: str = VERSION) -> None:
    """Strict: a field that Kubernetes does not know is an error."""
    import jsonschema  # it takes seconds, in every process that collects tests
    import kubernetes_validate

    if thing["kind"] == "ScaledObject":
        assert thing["apiVersion"] == "keda.sh/v1alpha1"
        assert thing["spec"].keys() <= SCALED
        for trigger in thing["spec"]["triggers"]:
            assert trigger["type"] == "prometheus"
            assert trigger["metadata"].keys() <= PROMETHEUS_TRIGGER
        return
    if thing["kind"] != "LeaderWorkerSet":
        kubernetes_validate.validate(thing, version, strict=True)
        return
    jsonschema.validate(thing, GROUP_SCHEMA)
    for template in pod_templates(thing):
        named = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}}
        kubernetes_validate.validate({**named, "template": template}, version, strict=True)


def pod_templates(thing: dict[str, Any]) -> list[dict[str, Any]]:
    spec = thing.get("spec", {})
    group = spec.get("leaderWorkerTemplate", {})
    found = (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate"))
    return [template for template in found if template]


def pods() -> list[dict[str, Any]]:
    return [template for thing in objects() for template in pod_templates(thing)]


def containers() -> list[dict[str, Any]]:
    """With those that run before."""
    return [container for pod in pods() for container in containers_of(pod)]


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [thing for thing in objects() if thing["kind"] == kind]


def name_of(pod: dict[str, Any]) -> str:
    return pod["metadata"]["labels"]["app.kubernetes.io/name"]


def literals() -> dict[str, dict[str, str]]:
    """Settings by the ConfigMap that kustomize makes of them."""
    [base] = documents(KUBERNETES / "base" / "kustomization.yaml")
    return {
        each["name"]: dict(line.split("=", 1) for line in each["literals"])
        for each in base["configMapGenerator"]
    }
