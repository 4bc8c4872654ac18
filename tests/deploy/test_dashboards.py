"""The dashboards are those that dashboards/ describes, and Grafana can draw them."""

from __future__ import annotations

import json
import re

import pytest

from dashboards.__main__ import ALL, FOLDER, files
from tests.deploy.places import ROOT
from tests.deploy.test_metrics import DASHBOARDS

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one["uid"])


def test_the_files_are_those_of_the_description():
    written = {path: path.read_text() for path in FOLDER.glob("*.json")}
    assert written == files(), "run: make doc-tables"


@each_dashboard
def test_queries_name_variables_that_the_dashboard_has(dashboard):
    text = json.dumps([each.get("targets") for each in dashboard["panels"]])
    asked = set(re.findall(r"\$(\w+)", text)) - {"__rate_interval"}
    assert asked == {each["name"] for each in dashboard["templating"]["list"]}


@each_dashboard
def test_every_legend_is_a_label_of_its_query(dashboard):
    """Of what the query groups by: other labels are lost. Without a group all are kept."""
    for target in (each for panel in dashboard["panels"] for each in panel.get("targets", ())):
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        groups = re.findall(r"by \(([^)]+)\)", target["expr"])
        for group in groups:
            assert shown <= set(re.split(r",\s*", group)), target["expr"]


def test_the_runbook_names_panels_and_dashboards_that_exist():
    text = re.sub(r"\s+", " ", (ROOT / "docs/runbook.md").read_text())
    titles = {panel["title"] for dashboard in DASHBOARDS for panel in dashboard["panels"]}
    named = set(re.findall(r'panel "([^"]+)"', text))
    assert named
    assert named <= titles
    assert set(re.findall(r'dashboard "([^"]+)"', text)) <= {each.title for each in ALL}
