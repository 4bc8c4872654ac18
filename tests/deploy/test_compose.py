"""compose.yaml, compose.cpu.yaml and compose.pools.yaml: valid, and wired to what is there.

Models, secrets, networks, metrics; traces from the proxy and Triton to the collector and Tempo.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry, Histogram

from dashboards.grafana import SOURCE
from proxy.domain.record import Trace
from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.source_url import parse
from proxy.settings import Settings
from proxy.telemetry.generation_metrics import observe
from tests.deploy.places import DOCKER, documents, find, is_known, starts_with_keys

SINGLE = ("compose.yaml", "compose.cpu.yaml")
POOLS = "compose.pools.yaml"
TRITONS, PROXIES = ("triton-1", "triton-2", "triton-3"), ("proxy-1", "proxy-2")
WATCHING = {"prometheus", "grafana", "collector", "tempo"}
WRITING = {"build", "grafana"}
CONFIGS = {
    "collector": ("./traces/collector.yaml", "/etc/otelcol-contrib/config.yaml"),
    "tempo": ("./traces/tempo.yaml", "/etc/tempo/tempo.yaml"),
}
FIELDS = Settings.model_fields
single = pytest.mark.parametrize("name", SINGLE)
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


def config(service: str) -> dict[str, Any]:
    [found] = documents(DOCKER / CONFIGS[service][0])
    return found


def port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


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
def test_all_read_the_same_models_and_no_two_tritons_build_into_one_folder(name):
    mounts = {each: own.get("volumes", []) for each, own in services(name).items()}
    models = {
        each: [m for m in given if ":/app/models.yaml:" in m] for each, given in mounts.items()
    }
    tritons, proxies = of_role(name, "triton"), of_role(name, "proxy")
    assert {each for each in models if models[each]} >= {*tritons, *proxies}
    assert len({mount.partition(":/app/")[0] for given in models.values() for mount in given}) == 1
    built = [m for each in tritons for m in mounts[each] if m.endswith(":/artifacts")]
    assert name != POOLS or len(set(built)) == len(TRITONS)


@each_file
def test_what_is_published_is_on_loopback_and_in_a_network_that_is_not_internal(name):
    published = {each: own for each, own in services(name).items() if "ports" in own}
    assert published
    assert not {*of_role(name, "triton"), "collector", "tempo", "state"} & set(published)
    for each, own in published.items():
        for one in own["ports"]:
            assert re.match(r"(127\.0\.0\.1|\$\{BIND:-127\.0\.0\.1\}):", one)
        assert any(networks(name)[network] is None for network in own["networks"]), each


@single
def test_triton_listens_where_the_proxy_looks(name):
    found = services(name)
    host, number = found["proxy"]["environment"]["TRITON_URL"].removeprefix("grpc://").split(":")
    assert int(number) == FIELDS["triton_grpc_port"].default
    image = (DOCKER.parent / found[host]["build"]["dockerfile"]).read_text()
    given = found[host].get("environment", {}).get("TRITON_HOST")
    assert given == "0.0.0.0" or "TRITON_HOST=0.0.0.0" in image


def aliases(network: str, alias: str) -> set[str]:
    """The services of compose.pools.yaml that have this name in this network."""
    found = set()
    for each, own in services(POOLS).items():
        given = own["networks"].get(network) if isinstance(own["networks"], dict) else None
        if alias in (given or {}).get("aliases", ()):
            found.add(each)
    return found


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_source_of_a_proxy_has_the_addresses_of_every_triton(proxy):
    found = services(POOLS)
    assert set(found) == {*TRITONS, *PROXIES, "state", "front", *WATCHING}
    source = parse(found[proxy]["environment"]["TRITON_URL"])
    assert isinstance(source, DnsName)
    assert aliases("inference", source.host) == set(TRITONS)
    assert "inference" in found[proxy]["networks"]
    assert source.port == FIELDS["triton_grpc_port"].default
    assert source.metrics_port == FIELDS["triton_metrics_port"].default
    # The metrics are read at the address of the network `inference`.
    assert all(found[each]["environment"]["TRITON_HOST"] == "0.0.0.0" for each in TRITONS)


def test_nginx_divides_requests_among_the_proxies_which_share_live_state():
    found = services(POOLS)
    assert "server proxy:9000" in (DOCKER / "nginx" / "nginx.conf").read_text()
    assert aliases("clients", "proxy") == set(PROXIES)
    assert found["front"]["networks"] == ["clients"]
    assert set(found["front"]["depends_on"]) == set(PROXIES)
    assert members(POOLS, "clients") == {*PROXIES, "front"}
    assert members(POOLS, "state") == {*PROXIES, "state"}
    for each in PROXIES:
        assert urlsplit(found[each]["environment"]["LEDGER_URL"]).hostname == "state"


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


def test_the_gpu_servers_folders_for_kernels_are_bounded_and_execute():
    """Docker mounts a tmpfs with noexec if `exec` is not given: dlopen fails there."""
    mounts = dict(mount.split(":") for mount in services("compose.yaml")["triton"]["tmpfs"])
    home = re.search(r"\bHOME=(\S+)", (DOCKER / "triton.Dockerfile").read_text())
    assert set(mounts) == {"/tmp", home[1]}
    for options in mounts.values():
        assert {"exec", "size=8g"} <= set(options.split(","))
    assert {"uid=1000", "gid=1000"} < set(mounts[home[1]].split(","))


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
def test_each_proxy_says_why_keys_need_no_tls_and_may_start(name):
    for own in of_role(name, "proxy").values():
        starts_with_keys(own["environment"])


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


def sources() -> dict[str, dict[str, Any]]:
    folder = DOCKER / "grafana/provisioning/datasources"
    read = [yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")]
    return {source["uid"]: source for each in read for source in each["datasources"]}


def test_grafana_finds_its_dashboards_and_sources():
    [dashboards] = documents(DOCKER / "grafana/provisioning/dashboards/files.yaml")
    folder = dashboards["providers"][0]["options"]["path"]
    grafana = services("compose.yaml")["grafana"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DOCKER / "grafana/dashboards" / Path(home).relative_to(folder)).exists()
    found = sources()
    assert found["prometheus"]["url"] == "http://prometheus:9090"
    assert found[SOURCE["uid"]]["isDefault"]
    [scraping] = documents(DOCKER / "prometheus/prometheus.yml")
    interval = scraping["global"]["scrape_interval"]
    assert found["prometheus"]["jsonData"]["timeInterval"] == interval
    link = urlsplit(found["tempo"]["url"])
    assert (link.hostname, link.port) == ("tempo", config("tempo")["server"]["http_listen_port"])


@each_file
def test_the_proxy_and_triton_send_spans_to_the_collector_and_proxies_decide_what_is_traced(name):
    received = config("collector")["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    senders = {**of_role(name, "triton"), **of_role(name, "proxy")}
    for own in senders.values():
        link = urlsplit(own["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert (link.scheme, link.hostname, link.path) == ("http", "collector", "")
        assert link.port == port(received)
        assert own["environment"]["OTEL_SERVICE_NAME"]
    for each, own in services(name).items():
        environment, decides = own.get("environment", {}), each in of_role(name, "proxy")
        sampler, ratio = (
            ("parentbased_traceidratio", "${TRACE_RATIO:-0.1}") if decides else (None,) * 2
        )
        assert environment.get("OTEL_TRACES_SAMPLER") == sampler
        assert environment.get("OTEL_TRACES_SAMPLER_ARG") == ratio


@each_file
def test_the_collector_gives_spans_to_tempo_which_no_sender_reaches(name):
    found = services(name)
    for service, (source, target) in CONFIGS.items():
        assert f"{source}:{target}:ro" in found[service]["volumes"]
    assert found["tempo"]["command"] == [f"-config.file={CONFIGS['tempo'][1]}"]
    collector, tempo = config("collector"), config("tempo")
    [pipeline] = collector["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(collector[kind])
    assert pipeline["processors"][0] == "memory_limiter"
    limit_mib = collector["processors"]["memory_limiter"]["limit_mib"]
    assert found["collector"]["mem_limit"].endswith("mb")
    memory_mb = int(found["collector"]["mem_limit"][:-2])
    assert limit_mib < 0.9 * memory_mb, "it refuses spans before its container is full"
    grpc = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]
    assert collector["exporters"]["otlp"]["endpoint"] == f"tempo:{port(grpc['endpoint'])}"
    [place] = [
        each.partition(":")[2] for each in found["tempo"]["volumes"] if each.startswith("tempo:")
    ]
    storage = tempo["storage"]["trace"]
    assert storage["backend"] == "local"
    assert all(storage[each]["path"].startswith(f"{place}/") for each in ("wal", "local"))
    reaching = {e for one in found["tempo"]["networks"] for e in members(name, one)}
    assert reaching == {"tempo", "collector", "grafana"}
    assert networks(name)["trace-store"] == networks(name)["traces"] == {"internal": True}


@each_file
def test_an_exemplar_is_kept_and_leads_to_its_trace(name):
    assert "--enable-feature=exemplar-storage" in services(name)["prometheus"]["command"]
    found = sources()
    [target] = found["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert found[target["datasourceUid"]]["type"] == "tempo"
    measured = Histogram("seconds", "of one request", registry=CollectorRegistry())
    observe(measured, 0.3, Trace(trace_id=1, span_id=2, parent_id=None, is_sampled=True))
    [family] = measured.collect()
    [exemplar] = [each.exemplar for each in family.samples if each.exemplar]
    assert target["name"] in exemplar.labels
