"""Kubernetes manifests: valid by Kubernetes' schemas, and right with one another."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest

from proxy.api.http.body_reader import MOST_BODIES_BYTES
from proxy.settings import Settings
from proxy.state.answer import KEPT_PART, held_bytes, within
from tests.deploy.manifests import (
    KUBERNETES,
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
from tests.deploy.places import DOCKER, MANIFESTS, ROOT, documents, find, is_known, starts_with_keys

kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders it")
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("version", [OLDEST, VERSION])
def test_each_manifest_is_valid(path, version):
    for thing in documents(path):
        validate(thing, version)


@pytest.mark.parametrize(("pods", "evicted"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_the_budget_keeps_the_only_triton_pod_and_half_of_several(pods, evicted):
    [budget] = [
        each for each in of_kind("PodDisruptionBudget") if each["metadata"]["name"] == "triton"
    ]
    percent = int(budget["spec"]["minAvailable"].removesuffix("%"))
    assert pods - math.ceil(pods * percent / 100) == evicted


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


def test_every_manifest_is_a_resource_of_its_folder():
    for folder in ("base", *OVERLAYS):
        [kustomization] = documents(KUBERNETES / folder / "kustomization.yaml")
        own = {path.name for path in MANIFESTS if path.parent.name == folder}
        assert own == {each for each in kustomization["resources"] if each.endswith(".yaml")}


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


def test_the_proxy_says_why_keys_need_no_tls_and_may_start():
    starts_with_keys(literals()["proxy-settings"])


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


def test_what_a_pod_runs_before_it_stops_is_in_the_image():
    [command] = {
        tuple(hook["command"]) for hook in find(containers(), "exec") if "python3" in str(hook)
    }
    script = Path(command[1]).relative_to("/app")
    assert (ROOT / script).exists()
    assert f"COPY {script} {script.parent}/" in (DOCKER / "triton.Dockerfile").read_text()


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


def test_a_load_is_given_up_no_sooner_than_its_pod():
    """The image's half an hour is too short for a large model from network storage."""
    given = literals()["triton-settings"]
    probes = [
        each["startupProbe"]
        for each in containers()
        if each["name"] == "triton" and "startupProbe" in each
    ]
    assert len(probes) == len(OVERLAYS)
    for probe in probes:
        allowed = probe["periodSeconds"] * probe["failureThreshold"]
        assert int(given["TRITON_START_TIMEOUT_S"]) == allowed


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


@pytest.mark.parametrize(("wanted_mb", "allowed_mb"), [(1000, 200), (150, 150)])
def test_kept_answers_get_no_more_than_their_part_of_the_memory(wanted_mb, allowed_mb):
    assert within("MAX_KEPT_MB", wanted_mb, 0.2, 1_000_000_000) == allowed_mb * 1_000_000


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


def test_services_lead_to_ports_of_their_pods():
    for service in of_kind("Service"):
        for pod in pods():
            if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
                named = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
                assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    [triton] = [each for each in of_kind("Service") if each["metadata"]["name"] == "triton"]
    assert literals()["proxy-settings"]["TRITON_URL"] == (
        f"grpc://triton:{triton['spec']['ports'][0]['port']}"
    )


def test_autoscalers_scale_what_is_there_by_what_the_adapter_gives():
    [adapter] = documents(DOCKER / "prometheus" / "adapter.yaml")
    given = {rule["name"]["as"] for rule in adapter}
    there = {(each["kind"], each["metadata"]["name"]) for each in of_kind("Deployment")}
    for scaler in of_kind("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in there
        assert {metric["name"] for metric in find(scaler, "metric")} <= given
    assert find(of_kind("HorizontalPodAutoscaler"), "metric")


@each_overlay
def test_a_model_has_a_gpu_for_each_rank(overlay):
    [models] = documents(KUBERNETES / overlay / "models.yaml")
    [world] = {
        gpu.get("tensor_parallel", 1) * gpu.get("pipeline_parallel", 1)
        for gpu in find(models, "gpu")
    }
    things = [
        thing
        for path in MANIFESTS
        if path.parent.name == overlay
        for thing in documents(path)
        if pod_templates(thing)
    ]
    [thing] = things
    size = thing["spec"].get("leaderWorkerTemplate", {}).get("size", 1)
    [gpus] = {limits["nvidia.com/gpu"] for limits in find(thing, "limits")}
    assert size * gpus == world
    given = [each for env in find(thing, "env") for each in env if each["name"] == "GPUS_PER_NODE"]
    assert overlay == "single-node" or given == [{"name": "GPUS_PER_NODE", "value": str(gpus)}]
