"""Traces in compose: from the proxy and Triton to the collector, to Tempo, to Grafana."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry, Histogram

from dashboards.grafana import SOURCE
from proxy.domain.record import Trace
from proxy.telemetry.generation_metrics import observe
from tests.deploy.places import DOCKER, documents
from tests.deploy.test_compose import services

FILES = ("compose.yaml", "compose.cpu.yaml", "compose.pools.yaml")
each_file = pytest.mark.parametrize("name", FILES)
CONFIGS = {
    "collector": ("./traces/collector.yaml", "/etc/otelcol-contrib/config.yaml"),
    "tempo": ("./traces/tempo.yaml", "/etc/tempo/tempo.yaml"),
}


def config(service: str) -> dict[str, Any]:
    [found] = documents(DOCKER / CONFIGS[service][0])
    return found


def port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def share_a_network(found: dict[str, dict[str, Any]], one: str, other: str) -> bool:
    return bool(set(found[one]["networks"]) & set(found[other]["networks"]))


@each_file
def test_each_reads_its_configuration(name):
    found = services(name)
    for service, (source, target) in CONFIGS.items():
        assert f"{source}:{target}:ro" in found[service]["volumes"]
        assert config(service)
    assert found["tempo"]["command"] == [f"-config.file={CONFIGS['tempo'][1]}"]


@each_file
def test_the_proxy_and_triton_send_their_spans_to_the_collector(name):
    found = services(name)
    received = config("collector")["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    senders = [each for each in found if each.startswith(("proxy", "triton"))]
    assert senders
    for each in senders:
        environment = found[each]["environment"]
        link = urlsplit(environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert (link.scheme, link.hostname, link.path) == ("http", "collector", "")
        assert link.port == port(received)
        assert environment["OTEL_SERVICE_NAME"]
        assert "traces" in found[each]["networks"]
    assert "traces" in found["collector"]["networks"]


@each_file
def test_only_proxies_decide_what_is_traced(name):
    for each, own in services(name).items():
        environment = own.get("environment", {})
        sampler = environment.get("OTEL_TRACES_SAMPLER")
        assert sampler == ("parentbased_traceidratio" if each.startswith("proxy") else None)
        ratio = "${TRACE_RATIO:-0.1}" if sampler else None
        assert environment.get("OTEL_TRACES_SAMPLER_ARG") == ratio


def test_the_collector_gives_them_to_tempo():
    found = config("collector")
    [pipeline] = found["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(found[kind])
    assert pipeline["processors"][0] == "memory_limiter"
    memory = services("compose.yaml")["collector"]["mem_limit"]
    assert memory.endswith("mb")
    limit = found["processors"]["memory_limiter"]["limit_mib"]
    assert limit < 0.9 * int(memory[:-2]), "it refuses spans before its container is full"
    host, _, number = found["exporters"]["otlp"]["endpoint"].partition(":")
    assert host == "tempo"
    grpc = config("tempo")["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]
    assert int(number) == port(grpc["endpoint"])


@each_file
def test_no_sender_reaches_the_store_and_grafana_does(name):
    found = services(name)
    assert share_a_network(found, "collector", "tempo")
    assert share_a_network(found, "grafana", "tempo")
    reaching = {each for each in found if share_a_network(found, each, "tempo")}
    assert reaching == {"tempo", "collector", "grafana"}
    assert "ports" not in found["tempo"]
    assert "ports" not in found["collector"]
    [document] = documents(DOCKER / name)
    assert document["networks"]["traces"] == document["networks"]["trace-store"]
    assert document["networks"]["trace-store"] == {"internal": True}


def test_tempo_writes_into_its_volume():
    volumes = services("compose.yaml")["tempo"]["volumes"]
    [place] = [each.partition(":")[2] for each in volumes if each.startswith("tempo:")]
    storage = config("tempo")["storage"]["trace"]
    assert storage["backend"] == "local"
    assert all(storage[each]["path"].startswith(f"{place}/") for each in ("wal", "local"))


def sources() -> dict[str, dict[str, Any]]:
    folder = DOCKER / "grafana/provisioning/datasources"
    read = [yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")]
    return {source["uid"]: source for each in read for source in each["datasources"]}


def test_grafana_finds_its_sources():
    found = sources()
    assert found["prometheus"]["url"] == "http://prometheus:9090"
    assert found[SOURCE["uid"]]["isDefault"]
    [scraping] = documents(DOCKER / "prometheus/prometheus.yml")
    interval = scraping["global"]["scrape_interval"]
    assert found["prometheus"]["jsonData"]["timeInterval"] == interval
    link = urlsplit(found["tempo"]["url"])
    assert link.hostname == "tempo"
    assert link.port == config("tempo")["server"]["http_listen_port"]


@each_file
def test_an_exemplar_is_kept_and_leads_to_its_trace(name):
    assert "--enable-feature=exemplar-storage" in services(name)["prometheus"]["command"]
    found = sources()
    [target] = found["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert target["datasourceUid"] in found
    assert found[target["datasourceUid"]]["type"] == "tempo"
    seconds = Histogram("seconds", "of one request", registry=CollectorRegistry())
    observe(seconds, 0.3, Trace(trace_id=1, span_id=2, parent_id=None, is_sampled=True))
    [family] = seconds.collect()
    [exemplar] = [each.exemplar for each in family.samples if each.exemplar]
    assert target["name"] in exemplar.labels
