"""compose.pools.yaml: every proxy reaches every Triton, and nginx every proxy."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.source_url import parse
from proxy.settings import Settings
from tests.deploy.places import DOCKER, documents, find
from tests.deploy.test_compose import seconds, services

NAME = "compose.pools.yaml"
TRITONS, PROXIES = ("triton-1", "triton-2", "triton-3"), ("proxy-1", "proxy-2")
WATCHING = ("prometheus", "grafana", "collector", "tempo")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return services(NAME)


def named(found: dict[str, dict[str, Any]], network: str, alias: str) -> set[str]:
    """The services that have this name in this network."""
    networks = {each: own["networks"] for each, own in found.items()}
    return {
        each
        for each, own in networks.items()
        if isinstance(own, dict) and alias in ((own.get(network) or {}).get("aliases") or ())
    }


def test_three_tritons_two_proxies_and_a_front(found):
    assert set(found) == {*TRITONS, *PROXIES, "state", "front", *WATCHING}


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_source_of_a_proxy_has_the_addresses_of_every_triton(found, proxy):
    source = parse(found[proxy]["environment"]["TRITON_URL"])
    assert isinstance(source, DnsName)
    assert named(found, "inference", source.host) == set(TRITONS)
    assert "inference" in found[proxy]["networks"]
    fields = Settings.model_fields
    assert source.port == fields["triton_grpc_port"].default
    assert source.metrics_port == fields["triton_metrics_port"].default
    # The metrics are read at the address of the network `inference`.
    assert all(found[each]["environment"]["TRITON_HOST"] == "0.0.0.0" for each in TRITONS)


def test_nginx_divides_requests_among_the_proxies(found):
    assert "server proxy:9000" in (DOCKER / "nginx" / "nginx.conf").read_text()
    assert named(found, "clients", "proxy") == set(PROXIES)
    assert found["front"]["networks"] == ["clients"]
    assert set(found["front"]["depends_on"]) == set(PROXIES)
    assert [each for each, own in found.items() if "clients" in own["networks"]] == [
        *PROXIES,
        "front",
    ]


def test_the_proxies_share_live_state_and_nobody_else_reaches_it(found):
    for each in PROXIES:
        assert urlsplit(found[each]["environment"]["LEDGER_URL"]).hostname == "state"
    assert [each for each, own in found.items() if "state" in own["networks"]] == [
        *PROXIES,
        "state",
    ]
    assert "ports" not in found["state"]


def test_no_two_tritons_build_into_one_folder(found):
    volumes = [own["volumes"][0] for each, own in found.items() if each in TRITONS]
    assert all(volume.endswith(":/artifacts") for volume in volumes)
    assert len(set(volumes)) == len(TRITONS)
    models = {own["volumes"][-1] for each, own in found.items() if each in (*TRITONS, *PROXIES)}
    assert len(models) == 1


def test_all_have_time_to_drain_and_refuse_to_start_without_secrets(found):
    for each in (*TRITONS, *PROXIES):
        assert seconds(found[each]["stop_grace_period"]) >= 40, each
        assert found[each]["environment"]["TRITON_SECRET"].startswith("${TRITON_SECRET:?"), each
    for each in PROXIES:
        assert found[each]["environment"]["API_KEY"].startswith("${API_KEY:?"), each


def test_tritons_reach_nothing_outside_and_no_caller_reaches_them(found):
    [document] = documents(DOCKER / NAME)
    for each in TRITONS:
        assert "ports" not in found[each]
        assert all(document["networks"][name]["internal"] for name in found[each]["networks"])


def test_prometheus_scrapes_every_server_by_its_name(found):
    [option] = [each for each in found["prometheus"]["command"] if "config.file" in each]
    assert option == "--config.file=/etc/prometheus/pools.yml"
    [config] = documents(DOCKER / "prometheus" / "pools.yml")
    targets = [target for targets in find(config, "targets") for target in targets]
    assert targets == [f"{each}:9000" for each in PROXIES] + [f"{each}:8002" for each in TRITONS]
    assert all("metrics" in found[each]["networks"] for each in (*PROXIES, *TRITONS))
