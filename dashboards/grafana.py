"""Dashboards in Grafana's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from dashboards.panel import Dashboard, Panel, Query, Row, Variable

SOURCE = {"type": "prometheus", "uid": "prometheus"}
TAG = "triton-openai"
COLUMNS, ACROSS, HEIGHT = 24, 3, 8
SCHEMA = 39  # of Grafana 10.1 and later, which migrate it


def document(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"{TAG}-{dashboard.name}",
        "title": f"{TAG}: {dashboard.title}",
        "description": dashboard.note,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [LINKS],
        "annotations": {"list": []},
        "templating": {"list": [_variable(each) for each in dashboard.variables]},
        "panels": list(_panels(dashboard.rows)),
    }


# A menu with all of our dashboards, which keeps the time and what is chosen.
LINKS = {
    "type": "dashboards",
    "title": "Dashboards",
    "tags": [TAG],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
}


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        yield {"type": "row", "id": number, "title": row.title, "gridPos": place, "panels": []}
        y += 1
        for index, panel in enumerate(row.panels):
            number += 1
            width = COLUMNS // ACROSS
            x, line = index % ACROSS * width, index // ACROSS
            place = {"h": HEIGHT, "w": width, "x": x, "y": y + line * HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
        y += -(-len(row.panels) // ACROSS) * HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.is_stacked else "none"}
    custom = {"fillOpacity": 10, "stacking": stacking}
    targets = [
        _target(letter, query)
        for letter, query in zip(ascii_uppercase, panel.queries, strict=False)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.note,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": targets,
    }


def _target(letter: str, query: Query) -> dict[str, Any]:
    target = {"refId": letter, "expr": query.expr, "legendFormat": query.legend}
    return {**target, "exemplar": True} if query.has_exemplars else target


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.label,
        "label": variable.title,
        "type": "query",
        "datasource": SOURCE,
        "query": {
            "query": f"label_values({variable.metric}, {variable.label})",
            "refId": variable.label,
        },
        "includeAll": True,
        "multi": True,
        "refresh": 2,  # whenever the time range changes
        "current": {"text": "All", "value": "$__all"},
        "allValue": ".*",
    }
