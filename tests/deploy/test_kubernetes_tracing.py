"""The component that sends the traces of proxies and Triton's pods to a collector."""

from __future__ import annotations

import shutil

import pytest

from proxy.telemetry.traces.configuration import TraceConfiguration
from tests.deploy.manifests import KUBERNETES, OVERLAYS, rendered_with, validate
from tests.deploy.places import documents

COMPONENT = KUBERNETES / "tracing"


def settings(name: str) -> dict[str, str]:
    """What the component adds to this ConfigMap."""
    [component] = documents(COMPONENT / "kustomization.yaml")
    [found] = [each for each in component["configMapGenerator"] if each["name"] == name]
    assert found["behavior"] == "merge"
    return dict(literal.split("=", 1) for literal in found["literals"])


def test_the_proxy_takes_its_settings():
    found = TraceConfiguration.read(settings("proxy-settings"))
    assert found.endpoint == "http://opentelemetry-collector.monitoring:4318/v1/traces"
    assert (found.ratio, found.follows_callers, found.has_content) == (0.1, True, False)


def test_triton_sends_to_the_same_collector():
    names = ("proxy-settings", "triton-settings")
    assert len({settings(name)["OTEL_EXPORTER_OTLP_ENDPOINT"] for name in names}) == 1


def test_the_way_there_is_open_for_both_and_for_its_port_alone():
    policies = [each["spec"] for each in documents(COMPONENT / "network.yaml")]
    chosen = [each["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for each in policies]
    assert chosen == ["proxy", "triton"]
    for policy in policies:
        [way] = policy["egress"]
        assert [each["port"] for each in way["ports"]] == [4318]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders it")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_with_the_component(overlay, tmp_path):
    found = rendered_with(overlay, "../tracing", tmp_path)
    for each in found:
        validate(each)
    maps = [each["data"] for each in found if each["kind"] == "ConfigMap"]
    assert sum("OTEL_EXPORTER_OTLP_ENDPOINT" in data for data in maps) == 2
