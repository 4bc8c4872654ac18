"""A page of Prometheus' text format as numbers, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from proxy.processes.errors import LaunchError

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""
Page = Mapping[str, Mapping[Labels, float]]
"""The value of each series, by the name of its metric."""
Groups = dict[tuple[str, ...], float]


def parsed(text: str) -> Page:
    """Raises LaunchError: the text is something else."""
    page: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                page.setdefault(sample.name, {})[labels] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise LaunchError(f"/metrics has no page of Prometheus' text format: {error}") from None
    return page


def increments(before: Page, after: Page) -> Page:
    """By how much each counter has grown. One that went back was restarted, and has grown from 0;
    so has one that is new.
    """
    return {
        name: {
            labels: _growth(before.get(name, {}).get(labels, 0.0), value)
            for labels, value in series.items()
        }
        for name, series in after.items()
    }


def summed(page: Page, name: str, *by: str) -> Groups:
    """The sum over a metric's series, for the values of these labels; a series that lacks one is
    left out.
    """
    found: Groups = {}
    for labels, value in page.get(name, {}).items():
        given = dict(labels)
        if all(label in given for label in by):
            group = tuple(given[label] for label in by)
            found[group] = found.get(group, 0.0) + value
    return found


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after
