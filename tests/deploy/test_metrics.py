"""Alerts, dashboards and autoscaler ask for metrics, labels and values that the code has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml

from build_engines import triton_models
from build_engines.models_file import ModelEntry
from proxy.domain import errors
from proxy.domain.endpoints import EndpointState
from proxy.domain.output import FinishReason
from proxy.models.registry import ModelInfo, Registry
from proxy.telemetry.endpoint_metrics import EndpointMetrics, Outcome
from proxy.telemetry.metrics import Metrics
from tests.contract import test_log_lines
from tests.deploy.places import DOCKER, ROOT, documents, find

RULE_FILES = ("rules.yml", "slo.yml")
RULES = [
    group
    for name in RULE_FILES
    for group in yaml.safe_load((DOCKER / "prometheus" / name).read_text())["groups"]
]
DASHBOARDS = [
    json.loads(path.read_text()) for path in sorted((DOCKER / "grafana/dashboards").glob("*.json"))
]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
VLLM = yaml.safe_load((DOCKER / "prometheus/vllm.yml").read_text())["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"] if "alert" in rule]
RECORDED = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}
CONFIGS = ("prometheus.yml", "pools.yml", "kubernetes.yml")
RUNBOOK_LABEL = "{{ $externalLabels.runbook }}"
SCRAPED = {"job", "instance", "namespace", "pod"}
PROMETHEUS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
# By NVIDIA's sources and documentation. Ours export the first two as well; no GPU was seen.
OF_TRITON = {"model", "version"}
NVIDIA = {
    "nv_trt_llm_request_metrics": OF_TRITON | {"request_type"},
    "nv_trt_llm_kv_cache_block_metrics": OF_TRITON | {"kv_cache_block_type"},
    "nv_inference_request_success": OF_TRITON,
    "nv_inference_request_failure": OF_TRITON | {"reason"},
    "nv_inference_queue_duration_us": OF_TRITON,
    "nv_inference_pending_request_count": OF_TRITON,
    "nv_gpu_utilization": {"gpu_uuid"},
    "nv_gpu_memory_used_bytes": {"gpu_uuid"},
    "nv_gpu_memory_total_bytes": {"gpu_uuid"},
    "nv_gpu_power_usage": {"gpu_uuid"},
    "nv_gpu_power_limit": {"gpu_uuid"},
}
# Of the dcgm-exporter's etc/default-counters.csv.
DCGM = {
    f"DCGM_FI_{name}": {"gpu", "UUID", "device", "modelName", "Hostname"}
    for name in (
        *("DEV_GPU_UTIL", "DEV_FB_USED", "DEV_FB_FREE", "DEV_GPU_TEMP", "DEV_POWER_USAGE"),
        *("DEV_SM_CLOCK", "DEV_XID_ERRORS", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE"),
        *("PROF_NVLINK_TX_BYTES", "PROF_NVLINK_RX_BYTES"),
        *("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
    )
}


def proxy_metrics() -> dict[str, set[str]]:
    """Name of each series -> its labels."""
    metrics = Metrics()
    found: dict[str, set[str]] = {}
    EndpointMetrics(metrics.registry, metrics.generations.leave_uncharged)
    for metric in set(metrics.registry._names_to_collectors.values()):
        names = metric._labelnames
        if names:
            metric.labels(*["x"] * len(names))
    metrics.registry.register(ModelInfo(Registry({"m": ModelEntry()})))
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def engine_metrics() -> set[str]:
    """By their text: the module can be imported in Triton only."""
    text = (ROOT / "model_repository/engine/1/metrics.py").read_text()
    return set(re.findall(r'"(engine_\w+)"', text))


KNOWN = {
    **PROMETHEUS,
    **proxy_metrics(),
    **{name: {"model"} for name in engine_metrics()},
    **{name: {"model", "slo"} for name in RECORDED},
    **NVIDIA,
    **DCGM,
}


def expressions() -> Iterator[tuple[str, str]]:
    """(where, what is asked), Grafana's own variables filled in."""
    for rule in (rule for group in (*RULES, *VLLM) for rule in group["rules"]):
        yield rule.get("alert") or rule["record"], rule["expr"]
    for dashboard in DASHBOARDS:
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                yield f"{dashboard['title']}: {panel['title']}", filled(target["expr"])
        for variable in dashboard["templating"]["list"]:
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            yield variable["name"], f"{asked[1]}{{{asked[2]}!=''}}"
    for rule in documents(DOCKER / "prometheus/adapter.yaml")[0]:
        yield rule["name"]["as"], rule["seriesQuery"]
    [scaled] = documents(DOCKER / "kubernetes/from-zero/scaled-object.yaml")
    for trigger in scaled["spec"]["triggers"]:
        yield scaled["kind"], trigger["metadata"]["query"]


def filled(query: str, interval: str = "1m") -> str:
    """A panel's query with its variables: everything is chosen."""
    return re.sub(r"\$\w+", ".*", query.replace("$__rate_interval", interval))


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    found = []

    def note(part: promql_parser.Expr) -> bool:
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        return True

    promql_parser.walk(promql_parser.parse(expression), note)
    return found


def matchers(selector: promql_parser.VectorSelector) -> dict[str, str]:
    return {each.name: each.value for each in selector.matchers.matchers}


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_it_asks_for_metrics_and_labels_that_exist(where, expression):
    found = selectors(expression)
    assert found or expression.startswith("vector(")
    for selector in found:
        assert selector.name in KNOWN, f"{where}: {selector.name}"
        assert set(matchers(selector)) <= KNOWN[selector.name] | SCRAPED, where


def test_other_names_lead_to_metrics_and_log_fields_that_exist():
    section = (ROOT / "docs/operations.md").read_text().split("\n## Other names\n")[1]
    rows = [row.split("|")[1:3] for row in section.split("\n## ")[0].splitlines() if "`" in row]
    asked = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert asked >= {
        *("requests_total", "ttft", "itl", "tps_prefill", "tps_decode", "kv_hits", "kv_misses"),
        *("queue_depth_prefill", "queue_depth_decode", "oom_events"),
        *("request_id", "tenant_id", "latency_ms", "prompt_tokens", "completion_tokens"),
    }
    families = {name.removesuffix("_bucket") for name in KNOWN} | test_log_lines.fields()
    for _, here in rows:
        named = [
            re.sub(r"^rate\((\w+)\[1m\]\)$", r"\1", each) for each in re.findall("`(.+?)`", here)
        ]
        assert named
        assert set(named) <= families


def test_outcomes_are_codes_of_the_code():
    codes = {code.value for code in errors.ErrorCode}
    outcomes = codes | {reason.value for reason in FinishReason} | {"abandoned", "server_full"}
    outcomes |= {outcome.value for outcome in Outcome}  # of an endpoint's streams
    asked = [
        value
        for rule in ALERTS
        for selector in selectors(rule["expr"])
        for label in ("outcome", "reason")
        for value in matchers(selector).get(label, "").split("|")
        if value
    ]
    unavailable = {code.value for code in errors.ErrorCode if code.status >= 500}
    assert unavailable <= set(asked), "each fault of ours raises an alert"
    assert set(asked) <= outcomes


def asked_for(metric: str, label: str) -> set[str]:
    """The values of the label that alerts and panels ask for."""
    return {
        value
        for _, expression in expressions()
        for selector in selectors(expression)
        if selector.name == metric
        for value in matchers(selector).get(label, "").split("|")
        if value
    }


def test_states_and_outcomes_of_endpoints_are_those_of_the_code():
    states = asked_for("proxy_pool_endpoints", "state")
    assert {"ready", "ejected"} < states <= {state.value for state in EndpointState}
    outcomes = asked_for("proxy_endpoint_streams_total", "outcome")
    assert {"lost"} < outcomes <= {outcome.value for outcome in Outcome}


def test_jobs_are_those_that_are_scraped():
    files = [DOCKER / "prometheus" / name for name in CONFIGS]
    scraped = [set(find(documents(path), "job_name")) for path in files]
    asked = {
        matchers(selector)["job"]
        for rule in ALERTS
        for selector in selectors(rule["expr"])
        if "job" in matchers(selector)
    }
    assert scraped == [asked] * len(CONFIGS)
    for path in files:
        [config] = documents(path)
        assert config["rule_files"] == list(RULE_FILES)


def test_every_alert_has_its_section_of_the_runbook_and_the_other_way_round():
    links = {rule["annotations"]["runbook_url"]: rule["alert"] for rule in ALERTS}
    assert all(link.startswith(f"{RUNBOOK_LABEL}#") for link in links)
    named = {link.partition("#")[2]: alert for link, alert in links.items()}
    assert named == {rule["alert"].lower(): rule["alert"] for rule in ALERTS}
    assert len(named) == len(ALERTS)
    assert set(re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)) == set(named.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_links_to_the_runbook_are_absolute(name):
    [config] = documents(DOCKER / "prometheus" / name)
    link = urlsplit(config["global"]["external_labels"]["runbook"])
    assert link.scheme == "https"
    assert link.netloc
    assert link.path.endswith("runbook.html")  # as `make docs` names the page


def test_recorded_series_of_nvidias_backend_have_the_public_name():
    """The proxy, our engine and the recorded rules call a model by one name, so that they join."""
    recorded = [rule for group in RULES for rule in group["rules"] if "record" in rule]
    for rule in (rule for rule in recorded if "nv_trt" in rule["expr"]):
        _, theirs = rule["expr"].split(" or ")
        match, _, renamed = theirs.strip().partition(" label_replace")
        assert match == "on (instance, model)"
        assert re.fullmatch(r'\(nv_trt.*, "model", "\$1", "model", "\(\.\*\)_engine"\)', renamed)
    assert triton_models.role_name("llama-3.1-8b", "engine") == "llama-3.1-8b_engine"


def test_the_names_labels_and_reasons_of_vllm_are_those_of_its_source():
    upstream = json.loads((ROOT / "tests/upstream/vllm_metrics.json").read_text())
    series = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    rules = [rule for group in VLLM for rule in group["rules"]]
    assert {rule["record"] for rule in rules} == {
        f"{name}{end}" for name, one in upstream["metrics"].items() for end in series[one["type"]]
    }
    for rule in rules:
        family = upstream["metrics"].get(rule["record"].removesuffix("_total"), {})
        assert rule.get("labels", {}).keys() == set(family.get("labels", ()))
        assert '"model_name"' in rule["expr"]
    reasons = {rule["labels"]["finished_reason"] for rule in rules if "labels" in rule}
    assert reasons == set(upstream["finished_reasons"]["values"])
