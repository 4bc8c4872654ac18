"""A dashboard as it is described here: rows of panels, each with its queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """expr: PromQL, which may name variables of the dashboard. legend: with labels as {{label}}.

    has_exemplars: the panel also shows the traces of single requests, where the metric has them.
    """

    expr: str
    legend: str
    has_exemplars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """unit: one of Grafana's names, such as `s`, `bytes`, `percentunit`."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    note: str = ""
    is_stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice at the top of the dashboard: the values that a label of a metric has."""

    label: str
    metric: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """name: of its file; links from other pages name it."""

    name: str
    title: str
    note: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
