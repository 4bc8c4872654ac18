"""compose.yaml and compose.cpu.yaml: valid, and wired to what is there.

What is special in compose.pools.yaml is tested in test_compose_pools.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.settings import Settings
from tests.deploy.places import DOCKER, documents, find, is_known

FILES = ("compose.yaml", "compose.cpu.yaml")
READ_ONLY = {
    *("triton", "proxy", "prometheus", "collector", "tempo"),
    *("triton-1", "triton-2", "triton-3", "proxy-1", "proxy-2", "state", "front"),
}
each_file = pytest.mark.parametrize("name", FILES)
with_pools = pytest.mark.parametrize("name", [*FILES, "compose.pools.yaml"])


def services(name: str) -> dict[str, dict[str, Any]]:
    """With what they extend."""
    [document] = documents(DOCKER / name)
    found = {}
    for service, own in document["services"].items():
        further = own.pop("extends", None)
        base = services(further["file"])[further["service"]] if further else {}
        found[service] = {**base, **own}
    return found


def seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration[:-1])


def test_they_follow_the_compose_specification():
    """The specification's own schema, as check-jsonschema brings it."""
    check = Path(sys.executable).with_name("check-jsonschema")
    files = [DOCKER / name for name in (*FILES, "compose.pools.yaml")]
    command = [check, "--builtin-schema", "vendor.compose-spec", *files]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@with_pools
def test_every_variable_is_a_setting(name):
    variables = [v for service in services(name).values() for v in service.get("environment", {})]
    assert "TRITON_URL" in variables
    assert [variable for variable in variables if not is_known(variable)] == []


@with_pools
def test_every_file_and_volume_is_there(name):
    [document] = documents(DOCKER / name)
    for service in services(name).values():
        for mount in service.get("volumes", []):
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", mount).split(":")[0]
            if mount.startswith("${TLS_DIR:?"):
                continue  # the operator's own
            if source.startswith("."):
                assert (DOCKER / source).exists(), mount
            else:
                assert source in document["volumes"], mount
        for build in find(service, "dockerfile"):
            assert (DOCKER / ".." / build).exists()


@each_file
def test_triton_and_the_proxy_read_the_same_models(name):
    sources = {
        service: mount.rpartition(":/app/models.yaml:")[0]
        for service, own in services(name).items()
        for mount in own.get("volumes", [])
        if ":/app/models.yaml:" in mount
    }
    assert set(sources) == {"build", "triton", "proxy"}
    assert len(set(sources.values())) == 1


@with_pools
def test_nothing_is_published_beyond_loopback(name):
    ports = [port for service in services(name).values() for port in service.get("ports", [])]
    assert ports
    assert all(re.match(r"(127\.0\.0\.1|\$\{BIND:-127\.0\.0\.1\}):", port) for port in ports)


@each_file
def test_triton_listens_where_the_proxy_looks(name):
    found = services(name)
    host, port = found["proxy"]["environment"]["TRITON_URL"].removeprefix("grpc://").split(":")
    assert host in found
    assert int(port) == Settings.model_fields["triton_grpc_port"].default
    image = (DOCKER.parent / found[host]["build"]["dockerfile"]).read_text()
    assert (
        found[host].get("environment", {}).get("TRITON_HOST") == "0.0.0.0"
        or "TRITON_HOST=0.0.0.0" in image
    )


@each_file
def test_the_proxy_writes_nothing_and_has_time_to_drain(name):
    proxy = services(name)["proxy"]
    assert proxy["read_only"] is True
    assert proxy["cap_drop"] == ["ALL"]
    drain_s = float(proxy["environment"]["DRAIN_TIMEOUT_S"])
    assert seconds(proxy["stop_grace_period"]) >= drain_s + 10


@each_file
def test_triton_has_time_to_drain(name):
    drain_s = Settings.model_fields["drain_timeout_s"].default
    assert seconds(services(name)["triton"]["stop_grace_period"]) >= drain_s + 10


@each_file
def test_triton_reaches_nothing_outside_and_no_caller_reaches_it(name):
    [document] = documents(DOCKER / name)
    found, networks = services(name), document["networks"]
    internal = {each for each, own in networks.items() if (own or {}).get("internal")}
    assert set(found["triton"]["networks"]) <= internal
    assert not {"clients", "operators"} & set(found["triton"]["networks"])
    assert "ports" not in found["triton"]
    shared = {
        each: set(own["networks"]) & set(found["triton"]["networks"]) for each, own in found.items()
    }
    assert {each: common for each, common in shared.items() if common} == {
        "triton": {"inference", "metrics", "traces"},
        "proxy": {"inference", "metrics", "traces"},
        "prometheus": {"metrics"},
        "collector": {"traces"},
    }


@with_pools
def test_a_published_port_needs_a_network_that_is_not_internal(name):
    [document] = documents(DOCKER / name)
    for each, own in services(name).items():
        if "ports" in own:
            open_ones = [one for one in own["networks"] if document["networks"][one] is None]
            assert open_ones, each


@with_pools
def test_every_service_has_a_memory_limit_and_gains_no_rights(name):
    for each, own in services(name).items():
        assert re.search(r"\d+(mb|gb)", own["mem_limit"]), each
        assert own["cap_drop"] == ["ALL"], each
        assert own["security_opt"] == ["no-new-privileges:true"], each
    assert all(own["read_only"] for each, own in services(name).items() if each in READ_ONLY)


@each_file
def test_only_the_build_has_the_hubs_token(name):
    holders = {e for e, own in services(name).items() if "HF_TOKEN" in own.get("environment", {})}
    assert holders == {"build"}


@each_file
def test_compose_refuses_to_start_without_secrets(name):
    found = services(name)
    for each, variable, given in (
        ("triton", "TRITON_SECRET", "TRITON_SECRET"),
        ("proxy", "TRITON_SECRET", "TRITON_SECRET"),
        ("proxy", "API_KEY", "API_KEY"),
        ("proxy", "METRICS_KEY", "METRICS_KEY"),
        ("prometheus", "METRICS_KEY", "METRICS_KEY"),
        ("grafana", "GF_SECURITY_ADMIN_PASSWORD", "GRAFANA_PASSWORD"),
    ):
        assert found[each]["environment"][variable].startswith(f"${{{given}:?")


@with_pools
def test_the_metrics_of_a_proxy_are_open_to_prometheus_alone(name):
    found = services(name)
    assert not any("PUBLIC_METRICS" in own.get("environment", {}) for own in found.values())
    file = next(each for each in found["prometheus"]["command"] if "config.file" in each)
    [config] = documents(DOCKER / "prometheus" / Path(file).name)
    of_proxies, *others = config["scrape_configs"]
    assert of_proxies["authorization"]["credentials_file"] == "/tmp/metrics-key"
    assert not any("authorization" in each for each in others)


def test_the_entry_point_of_prometheus_writes_the_key_for_its_user_only(tmp_path):
    [shell, *words] = services("compose.yaml")["prometheus"]["entrypoint"]
    here = [each.replace("$$", "$").replace("/tmp", str(tmp_path)) for each in words]
    here = [each.replace("exec prometheus", "exec echo") for each in here]
    environment = {"METRICS_KEY": "the key", "PATH": "/bin:/usr/bin"}
    run = [shell, *here, "--config.file=a b", "-x"]
    found = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "--config.file=a b -x\n"
    assert (tmp_path / "metrics-key").read_text() == "the key"
    assert (tmp_path / "metrics-key").stat().st_mode & 0o777 == 0o600


def test_prometheus_scrapes_services_of_both_files():
    [config] = documents(DOCKER / "prometheus" / "prometheus.yml")
    targets = [target for targets in find(config, "targets") for target in targets]
    ports = {"proxy": 9000, "triton": Settings.model_fields["triton_metrics_port"].default}
    assert targets == [f"{name}:{port}" for name, port in ports.items()]
    for name in FILES:
        assert set(ports) <= set(services(name))


@with_pools
def test_images_of_others_are_pinned(name):
    images = {own["image"] for own in services(name).values() if "image" in own}
    others = {each for each in images if not each.startswith("triton-openai/")}
    assert {each.split(":")[0] for each in others} >= {"prom/prometheus", "grafana/tempo"}
    assert [each for each in others if not re.search(r":v?\d+\.\d+\.\d+$", each)] == []


def test_grafana_finds_its_dashboards():
    [dashboards] = documents(DOCKER / "grafana/provisioning/dashboards/files.yaml")
    folder = dashboards["providers"][0]["options"]["path"]
    grafana = services("compose.yaml")["grafana"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DOCKER / "grafana/dashboards" / Path(home).relative_to(folder)).exists()
