"""Components of the manifests: proxies that find Triton's pods by EndpointSlices; traces."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from proxy.pools.discovery.kubernetes import KubernetesService
from proxy.pools.discovery.source_url import parse
from proxy.telemetry.traces.configuration import TraceConfiguration
from tests.deploy.manifests import KUBERNETES, OVERLAYS, pod_templates, rendered_with, validate
from tests.deploy.places import MANIFESTS, documents

COMPONENT, TRACING = KUBERNETES / "endpoints", KUBERNETES / "tracing"

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


def test_the_url_names_the_service_and_its_port():
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


def test_the_metrics_port_is_that_of_tritons_container():
    [triton] = documents(KUBERNETES / "single-node" / "triton.yaml")[:1]
    [template] = pod_templates(triton)
    ports = template["spec"]["containers"][0]["ports"]
    assert source().metrics_port in [each["containerPort"] for each in ports]


@kustomize
@each_overlay
def test_an_overlay_whose_proxies_find_pods(overlay, tmp_path):
    made = rendered_with(overlay, "../endpoints", tmp_path)
    for each in made:
        validate(each)
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "triton-openai"
    [proxy] = [each for each in made if each["kind"] == "Deployment" and is_proxy(each)]
    [template] = pod_templates(proxy)
    assert template["spec"]["serviceAccountName"] == "proxy"
    assert template["spec"]["automountServiceAccountToken"] is True
    [settings] = [
        each["data"]
        for each in made
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].startswith("proxy-settings")
    ]
    assert settings["TRITON_URL"] == source().text
    assert settings["DRAIN_TIMEOUT_S"], "the other settings are kept"
    assert "TRITON_CONNECTION_AGE_S" not in settings, "each pod has a connection of its own"
    [binding] = [
        each
        for each in made
        if each["kind"] == "RoleBinding" and each["metadata"]["name"] == "proxy"
    ]
    assert binding["subjects"][0]["namespace"] == "triton-openai"


def is_proxy(deployment: dict[str, Any]) -> bool:
    return deployment["metadata"]["name"] == "proxy"


def settings(name: str) -> dict[str, str]:
    """What the component adds to this ConfigMap."""
    [component] = documents(TRACING / "kustomization.yaml")
    [found] = [each for each in component["configMapGenerator"] if each["name"] == name]
    assert found["behavior"] == "merge"
    return dict(literal.split("=", 1) for literal in found["literals"])


def test_the_proxy_takes_its_settings_for_traces():
    found = TraceConfiguration.read(settings("proxy-settings"))
    assert found.endpoint == "http://opentelemetry-collector.monitoring:4318/v1/traces"
    assert (found.ratio, found.follows_callers, found.has_content) == (0.1, True, False)


def test_triton_sends_its_spans_to_the_same_collector():
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
