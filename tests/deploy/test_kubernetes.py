"""Kubernetes manifests: valid by Kubernetes' schemas, and right with one another."""

from __future__ import annotations

import re
import shutil

import pytest

from proxy.api.http.body_reader import MOST_BODIES_BYTES
from proxy.settings import Settings
from proxy.state.answer import KEPT_PART, held_bytes, within
from tests.deploy.manifests import (
    OLDEST,
    OVERLAYS,
    VERSION,
    containers,
    literals,
    name_of,
    of_kind,
    pod_templates,
    pods,
    rendered,
    validate,
)
from tests.deploy.places import MANIFESTS, ROOT, documents, find, is_known

kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders it")
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("version", [OLDEST, VERSION])
def test_each_manifest_is_valid(path, version):
    for thing in documents(path):
        validate(thing, version)


@kustomize
@each_overlay
def test_what_kustomize_makes_is_valid_and_whole(overlay):
    made = rendered(overlay)
    for thing in made:
        validate(thing)
        assert thing["kind"] == "Namespace" or thing["metadata"]["namespace"] == "triton-openai"
        for template in pod_templates(thing):  # the scrape config finds it by this label
            assert template["metadata"]["labels"]["app.kubernetes.io/part-of"] == "triton-openai"
    maps = {thing["metadata"]["name"] for thing in made if thing["kind"] == "ConfigMap"}
    named = {
        reference["name"]
        for thing in made
        for key in ("configMapRef", "configMap")
        for reference in find(thing, key)
    }
    assert named == maps
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert {image.partition(":")[2] for image in find(made, "image")} == {version}


def test_every_variable_is_a_setting_and_every_value_is_taken():
    """And no pod reads a map that nobody makes."""
    variables = [name for settings in literals().values() for name in settings]
    variables += [each["name"] for container in containers() for each in container.get("env", [])]
    assert "TRITON_URL" in variables
    assert [variable for variable in variables if not is_known(variable)] == []
    for settings in literals().values():
        fields = {name.lower(): value for name, value in settings.items()}
        Settings(**{name: fields[name] for name in fields if name in Settings.model_fields})
    named = {reference["name"] for reference in find(containers(), "configMapRef")}
    assert named == set(literals())


def test_a_pod_has_longer_than_its_drain_may_take():
    for pod in pods():
        grace_s = pod["spec"]["terminationGracePeriodSeconds"]
        if name_of(pod) == "proxy":
            pause_s = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            drain_s = float(literals()["proxy-settings"]["DRAIN_TIMEOUT_S"])
            assert grace_s >= pause_s + drain_s + 10
        elif name_of(pod) == "triton":
            command = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            drain_s = Settings.model_fields["drain_timeout_s"].default
            assert grace_s >= float(command[-1]) + drain_s + 20
            assert float(command[-1]) >= Settings.model_fields["request_timeout_s"].default


def test_probes_ask_ports_and_paths_that_answer():
    """Triton's HTTP API is off: gRPC's health protocol says whether its models are ready."""
    grpc = {"grpc": {"port": 8001}}
    wanted = {
        "proxy": {"readinessProbe": "/health/ready", "livenessProbe": "/health/live"},
        "triton": {"startupProbe": grpc, "readinessProbe": grpc, "livenessProbe": "/metrics"},
    }
    probed = [container for container in containers() if "readinessProbe" in container]
    assert {container["name"] for container in probed} == set(wanted)
    for container in probed:
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for name, asked in wanted[container["name"]].items():
            probe = container[name]
            if isinstance(asked, str):
                assert probe["httpGet"] == {"path": asked, "port": "metrics"}
                assert "metrics" in ports
            else:
                assert probe["grpc"] == asked["grpc"]
                assert ports["grpc"] == asked["grpc"]["port"]


def test_what_the_proxy_keeps_fits_into_its_memory():
    """It needs the last quarter for itself."""
    settings = Settings()
    (pod,) = (each for each in pods() if name_of(each) == "proxy")
    memory = size(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])
    kept = within("kept", settings.max_kept_mb, KEPT_PART, memory)
    held = held_bytes(memory)
    in_memory = [each for each in find([pod], "emptyDir") if each.get("medium") == "Memory"]
    files = sum(size(each["sizeLimit"]) for each in in_memory)
    assert kept + held + MOST_BODIES_BYTES + files < 0.75 * memory


def size(text: str) -> int:
    return int(text[:-2]) * {"Mi": 2**20, "Gi": 2**30}[text[-2:]]


OTHERS = {("k8s-app", "kube-dns"), ("app.kubernetes.io/name", "opentelemetry-collector")}


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_every_selector_finds_a_pod(kind):
    labels = [pod["metadata"]["labels"] for pod in pods()]
    selectors = find(of_kind(kind), "podSelector") + find(of_kind(kind), "selector")
    own = [each.get("matchLabels", each) for each in selectors]
    own = [each for each in own if not each.items() & OTHERS]
    assert own
    for wanted in own:
        assert any(wanted.items() <= each.items() for each in labels), wanted
