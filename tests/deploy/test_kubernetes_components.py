"""Components of the manifests: proxies that find Triton's pods by EndpointSlices; traces."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from proxy.pools.discovery.kubernetes import KubernetesService
from proxy.pools.discovery.source_url import parse
from proxy.settings import Settings
from proxy.telemetry.traces.configuration import TraceConfiguration
from tests.deploy.manifests import KUBERNETES, OVERLAYS, pod_templates, rendered_with, validate
from tests.deploy.places import MANIFESTS, documents

COMPONENT, TRACING = KUBERNETES / "endpoints", KUBERNETES / "tracing"
FROM_ZERO = KUBERNETES / "from-zero"

kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders it")
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def source() -> KubernetesService:
    [component] = documents(COMPONENT / "kustomization.yaml")
    [settings] = component["configMapGenerator"]
    [literal] = settings["literals"]
    found = parse(literal.removeprefix("TRITON_URL="))
    assert isinstance(found, KubernetesService)
    return found


def manifest(name: str, kind: str) -> dict[str, Any]:
    [found] = [each for each in documents(COMPONENT / name) if each["kind"] == kind]
    return found


def test_every_manifest_is_a_resource_of_the_component():
    [component] = documents(COMPONENT / "kustomization.yaml")
    own = {path.name for path in MANIFESTS if path.parent == COMPONENT}
    assert own == set(component["resources"])


def test_the_proxy_may_list_and_watch_endpointslices_and_nothing_else():
    [rule] = manifest("account.yaml", "Role")["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    }
    binding = manifest("account.yaml", "RoleBinding")
    account = manifest("account.yaml", "ServiceAccount")["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account]


def test_the_url_names_the_service_and_its_ports():
    [service] = [
        each
        for each in documents(KUBERNETES / "base" / "triton-service.yaml")
        if each["kind"] == "Service"
    ]
    found = source()
    assert found.service == service["metadata"]["name"]
    assert found.port in [port["name"] for port in service["spec"]["ports"]]
    for overlay in OVERLAYS:
        [made] = documents(KUBERNETES / overlay / "kustomization.yaml")
        assert found.namespace == made["namespace"]
    [triton] = documents(KUBERNETES / "single-node" / "triton.yaml")[:1]
    [template] = pod_templates(triton)
    ports = template["spec"]["containers"][0]["ports"]
    assert found.metrics_port in [each["containerPort"] for each in ports]


@kustomize
@each_overlay
def test_an_overlay_whose_proxies_find_pods(overlay, tmp_path):
    made = rendered_with(overlay, "../endpoints", tmp_path)
    for each in made:
        validate(each)
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "triton-openai"

    def named(kind: str, name: str) -> dict[str, Any]:
        [found] = [
            each
            for each in made
            if each["kind"] == kind and re.match(rf"{name}\b", each["metadata"]["name"])
        ]
        return found

    [template] = pod_templates(named("Deployment", "proxy"))
    assert template["spec"]["serviceAccountName"] == "proxy"
    assert template["spec"]["automountServiceAccountToken"] is True
    settings = named("ConfigMap", "proxy-settings")["data"]
    assert settings["TRITON_URL"] == source().text
    assert settings["DRAIN_TIMEOUT_S"], "the other settings are kept"
    assert "TRITON_CONNECTION_AGE_S" not in settings, "each pod has a connection of its own"
    binding = named("RoleBinding", "proxy")
    assert binding["subjects"][0]["namespace"] == "triton-openai"


def settings(name: str) -> dict[str, str]:
    """What the component adds to this ConfigMap."""
    [component] = documents(TRACING / "kustomization.yaml")
    [found] = [each for each in component["configMapGenerator"] if each["name"] == name]
    assert found["behavior"] == "merge"
    return dict(literal.split("=", 1) for literal in found["literals"])


def test_the_proxy_and_triton_send_spans_to_one_collector():
    found = TraceConfiguration.read(settings("proxy-settings"))
    assert found.endpoint == "http://opentelemetry-collector.monitoring:4318/v1/traces"
    assert (found.ratio, found.follows_callers, found.has_content) == (0.1, True, False)
    names = ("proxy-settings", "triton-settings")
    assert len({settings(name)["OTEL_EXPORTER_OTLP_ENDPOINT"] for name in names}) == 1


def test_the_way_to_the_collector_is_open_for_both_and_for_its_port_alone():
    policies = [each["spec"] for each in documents(TRACING / "network.yaml")]
    chosen = [each["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for each in policies]
    assert chosen == ["proxy", "triton"]
    for policy in policies:
        [way] = policy["egress"]
        assert [each["port"] for each in way["ports"]] == [4318]


@kustomize
@each_overlay
def test_an_overlay_with_traces(overlay, tmp_path):
    found = rendered_with(overlay, "../tracing", tmp_path)
    for each in found:
        validate(each)
    maps = [each["data"] for each in found if each["kind"] == "ConfigMap"]
    assert sum("OTEL_EXPORTER_OTLP_ENDPOINT" in data for data in maps) == 2


@kustomize
def test_triton_from_zero_has_one_autoscaler_and_the_proxies_hold_as_long_as_a_pod_starts(tmp_path):
    found = rendered_with("single-node", "../from-zero", tmp_path)
    [scaled] = [each for each in found if each["kind"] == "ScaledObject"]
    others = [each["spec"]["scaleTargetRef"] for each in found if "Autoscaler" in each["kind"]]
    target = scaled["spec"]["scaleTargetRef"]["name"]
    assert target not in [each["name"] for each in others]
    assert target in [each["metadata"]["name"] for each in found if each["kind"] == "Deployment"]
    assert scaled["spec"]["minReplicaCount"] == 0
    [data] = [each["data"] for each in found if "HOLD_TIMEOUT_S" in each.get("data", {})]
    settings = {name: data[name] for name in ("HOLD_TIMEOUT_S", "REQUEST_TIMEOUT_S")}
    made = Settings(**{name.lower(): value for name, value in settings.items()})
    assert made.request_timeout_s >= made.hold_timeout_s + made.queue_timeout_s
    for each in found:
        if each is not scaled:
            validate(each)
