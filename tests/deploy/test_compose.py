"""compose.yaml, compose.cpu.yaml and compose.pools.yaml: valid, and closed to strangers.

Variables, secrets, networks, rights, metrics.
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

SINGLE = ("compose.yaml", "compose.cpu.yaml")
POOLS = "compose.pools.yaml"
WRITING = {"build", "grafana"}
FIELDS = Settings.model_fields
each_file = pytest.mark.parametrize("name", [*SINGLE, POOLS])


def services(name: str) -> dict[str, dict[str, Any]]:
    """With what they extend."""
    [document] = documents(DOCKER / name)
    found = {}
    for service, own in document["services"].items():
        further = own.pop("extends", None)
        base = services(further["file"])[further["service"]] if further else {}
        found[service] = {**base, **own}
    return found


def of_role(name: str, role: str) -> dict[str, dict[str, Any]]:
    """The services that run this command: `triton` or `proxy`."""
    found = {each: own for each, own in services(name).items() if re.match(rf"{role}(-\d)?$", each)}
    assert found
    return found


def networks(name: str) -> dict[str, Any]:
    [document] = documents(DOCKER / name)
    return document["networks"]


def members(name: str, network: str) -> set[str]:
    return {each for each, own in services(name).items() if network in own["networks"]}


def seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration[:-1])


def test_they_follow_the_compose_specification():
    """The specification's own schema, as check-jsonschema brings it."""
    check = Path(sys.executable).with_name("check-jsonschema")
    files = [DOCKER / name for name in (*SINGLE, POOLS)]
    command = [check, "--builtin-schema", "vendor.compose-spec", *files]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@each_file
def test_every_variable_is_a_setting_and_only_the_build_has_the_hubs_token(name):
    given = {each: own.get("environment", {}) for each, own in services(name).items()}
    variables = {variable for environment in given.values() for variable in environment}
    assert "TRITON_URL" in variables
    assert [variable for variable in variables if not is_known(variable)] == []
    assert {each for each in given if "HF_TOKEN" in given[each]} <= {"build"}


@each_file
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
def test_what_is_published_is_on_loopback_and_in_a_network_that_is_not_internal(name):
    published = {each: own for each, own in services(name).items() if "ports" in own}
    assert published
    assert not {*of_role(name, "triton"), "collector", "tempo", "state"} & set(published)
    for each, own in published.items():
        for one in own["ports"]:
            assert re.match(r"(127\.0\.0\.1|\$\{BIND:-127\.0\.0\.1\}):", one)
        assert any(networks(name)[network] is None for network in own["networks"]), each


@each_file
def test_all_have_time_to_drain(name):
    for each, own in {**of_role(name, "triton"), **of_role(name, "proxy")}.items():
        drain_s = own.get("environment", {}).get("DRAIN_TIMEOUT_S")
        default_s = FIELDS["drain_timeout_s"].default
        grace_s = seconds(own["stop_grace_period"])
        assert grace_s >= float(default_s if drain_s is None else drain_s) + 10, each


@each_file
def test_triton_reaches_nothing_outside_and_no_caller_reaches_it(name):
    internal = {each for each, own in networks(name).items() if (own or {}).get("internal")}
    tritons, proxies = of_role(name, "triton"), of_role(name, "proxy")
    for own in tritons.values():
        assert set(own["networks"]) <= internal - {"clients", "operators"}
    assert members(name, "inference") == {*tritons, *proxies}
    assert members(name, "metrics") == {*tritons, *proxies, "prometheus"}
    assert members(name, "traces") == {*tritons, *proxies, "collector"}


@each_file
def test_every_service_has_a_memory_limit_and_gains_no_rights(name):
    for each, own in services(name).items():
        assert re.search(r"\d+(mb|gb)", own["mem_limit"]), each
        assert own["cap_drop"] == ["ALL"], each
        assert own["security_opt"] == ["no-new-privileges:true"], each
        assert each in WRITING or own["read_only"], each


@each_file
def test_compose_refuses_to_start_without_secrets(name):
    found = services(name)
    wanted = [(each, "TRITON_SECRET", "TRITON_SECRET") for each in of_role(name, "triton")]
    for each in of_role(name, "proxy"):
        wanted += [(each, one, one) for one in ("TRITON_SECRET", "API_KEY", "METRICS_KEY")]
    wanted.append(("prometheus", "METRICS_KEY", "METRICS_KEY"))
    wanted.append(("grafana", "GF_SECURITY_ADMIN_PASSWORD", "GRAFANA_PASSWORD"))
    for each, variable, given in wanted:
        assert found[each]["environment"][variable].startswith(f"${{{given}:?"), each


@each_file
def test_prometheus_scrapes_every_server_and_is_the_only_one_to_read_a_proxys_metrics(name):
    found = services(name)
    assert not any("PUBLIC_METRICS" in own.get("environment", {}) for own in found.values())
    file = next(each for each in found["prometheus"]["command"] if "config.file" in each)
    [read] = documents(DOCKER / "prometheus" / Path(file).name)
    of_proxies, *others = read["scrape_configs"]
    assert of_proxies["authorization"]["credentials_file"] == "/tmp/metrics-key"
    assert not any("authorization" in each for each in others)
    metrics_port = FIELDS["triton_metrics_port"].default
    wanted = [f"{each}:9000" for each in of_role(name, "proxy")]
    wanted += [f"{each}:{metrics_port}" for each in of_role(name, "triton")]
    targets = [target for targets in find(read, "targets") for target in targets]
    assert sorted(targets) == sorted(wanted)


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


@each_file
def test_images_of_others_are_pinned(name):
    images = {own["image"] for own in services(name).values() if "image" in own}
    others = {each for each in images if not each.startswith("triton-openai/")}
    assert {each.split(":")[0] for each in others} >= {"prom/prometheus", "grafana/tempo"}
    assert [each for each in others if not re.search(r":v?\d+\.\d+\.\d+$", each)] == []
