"""Alerts fire and do not fire, by promtool's own tests, which also read every file of rules."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from prometheus_client.utils import floatToGoString

from proxy.api.http.route_scopes import ROUTES
from proxy.domain.errors import ErrorCode
from proxy.domain.identity import Scope
from proxy.domain.output import FinishReason
from proxy.domain.record import DURATION_BUCKETS_S
from proxy.telemetry.generation_metrics import PROMISED_BUCKETS_S
from tests.deploy.places import DOCKER
from tests.deploy.test_metrics import ALERTS, CONFIGS, RULE_FILES, RULES, matchers, selectors
from tests.fixtures.prometheus import needs_prometheus, promtool

FOLDER = Path(__file__).with_name("alerts")
FILES = sorted(FOLDER.glob("*.yml"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
PROMETHEUS = DOCKER / "prometheus"


@needs_prometheus
@each_file
def test_alerts_fire_and_do_not_fire(file):
    result = promtool("test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_test_that_it_fires_and_one_that_it_does_not():
    found: dict[str, set[bool]] = defaultdict(set)
    for group in (group for file in FILES for group in yaml.safe_load(file.read_text())["tests"]):
        for test in group.get("alert_rule_test", ()):
            found[test["alertname"]].add(bool(test.get("exp_alerts")))
    assert found == {rule["alert"]: {True, False} for rule in ALERTS}


@needs_prometheus
@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_are_valid(name, tmp_path):
    """Debian builds Prometheus without Kubernetes: there, targets are put in their place. promtool
    looks for the file of the key.
    """
    config = yaml.safe_load((PROMETHEUS / name).read_text())
    for job in config["scrape_configs"]:
        if job.pop("kubernetes_sd_configs", None):
            job["static_configs"] = [{"targets": ["pod:9000"]}]
        if "authorization" in job:
            (tmp_path / "key").write_text("the key of this test")
            job["authorization"]["credentials_file"] = str(tmp_path / "key")
    for rules in RULE_FILES:
        (tmp_path / rules).write_text((PROMETHEUS / rules).read_text())
    (tmp_path / name).write_text(yaml.safe_dump(config))
    result = promtool("check", "config", tmp_path / name)
    assert result.returncode == 0, result.stdout + result.stderr


def recorded(name: str) -> dict[str, str]:
    """The recorded series of this name: slo -> expression."""
    rules = [rule for group in RULES for rule in group["rules"] if rule.get("record") == name]
    return {rule["labels"]["slo"]: rule["expr"] for rule in rules}


ERRORS = recorded("triton_openai:slo_errors:rate5m")
EVENTS = recorded("triton_openai:slo_events:rate5m")
OBJECTIVES = recorded("triton_openai:slo_objective")


def test_every_objective_counts_errors_and_events():
    assert OBJECTIVES.keys() == ERRORS.keys() == EVENTS.keys()
    alerted = {rule["expr"] for rule in ALERTS if "slo_objective" in rule["expr"]}
    asked = [
        value
        for expression in alerted
        for selector in selectors(expression)
        for value in matchers(selector).get("slo", "").split("|")
        if value
    ]
    assert set(asked) == OBJECTIVES.keys()


def asked_for(expression: str, label: str) -> list[set[str]]:
    """The values of each selector that has the label."""
    found = [matchers(each) for each in selectors(expression)]
    return [set(each[label].split("|")) for each in found if label in each]


def test_generations_fail_by_codes_of_ours_and_no_others():
    ours = {code.value for code in ErrorCode if code.status >= 500}
    finished = {reason.value for reason in FinishReason}
    # Where none failed, those that finished make the zero.
    assert asked_for(ERRORS["generations"], "outcome") == [ours, finished]
    assert asked_for(EVENTS["generations"], "outcome") == [ours | finished]


def test_responses_are_those_of_all_routes_that_generate():
    expressions = ERRORS["responses"], EVENTS["responses"]
    patterns = {
        matchers(selector)["route"]
        for expression in expressions
        for selector in selectors(expression)
    }
    [pattern] = patterns
    found = {route for route in ROUTES if re.fullmatch(pattern, route)}
    scopes = (Scope.CHAT, Scope.COMPLETIONS)
    generating = {path for path, r in ROUTES.items() if r.need in scopes and not r.counts}
    # A WebSocket has no HTTP response. /render has a scope of its own.
    assert found == generating - {"/v1/chat/completions/ws"}


@pytest.mark.parametrize(
    ("slo", "buckets"),
    [
        ("first_tokens", DURATION_BUCKETS_S),
        ("short_prompts", PROMISED_BUCKETS_S),
        ("short_answers", PROMISED_BUCKETS_S),
    ],
)
def test_the_bound_of_an_objective_is_a_bucket(slo, buckets):
    """`le` as prometheus_client writes it."""
    [bound] = asked_for(ERRORS[slo], "le")
    assert bound <= {floatToGoString(seconds) for seconds in buckets}
