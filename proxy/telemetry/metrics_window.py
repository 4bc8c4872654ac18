"""Metrics as numbers, and what their counters did in the last intervals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from prometheus_client import Metric

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""
Page = Mapping[str, Mapping[Labels, float]]
"""The value of each series, by the name of its metric."""
Groups = dict[tuple[str, ...], float]


def page_of(families: Iterable[Metric]) -> Page:
    page: dict[str, dict[Labels, float]] = {}
    for family in families:
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            page.setdefault(sample.name, {})[labels] = sample.value
    return page


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


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """share: 0 to 1. buckets: how many observations are at most so large, by upper bound, with the
    bound infinity. Linear within a bucket; what is in the last one counts as its lower bound.

    None: there are no observations.
    """
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]] > 0:
        return None
    rank = share * buckets[bounds[-1]]
    lower = below = 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (buckets[bound] - below)
        lower, below = bound, buckets[bound]
    return lower


INTERVALS = 5  # tokens are counted when a request ends, so that one interval alone would jump


class Window:
    """add(page) once an interval; rates are known from the second page on."""

    def __init__(self, intervals: int = INTERVALS) -> None:
        self._pages: deque[tuple[float, Page]] = deque(maxlen=intervals + 1)

    def add(self, page: Page, at_s: float) -> None:
        """at_s: on any clock, always the same."""
        self._pages.append((at_s, page))

    @property
    def page(self) -> Page:
        """The last one."""
        return self._pages[-1][1] if self._pages else {}

    @property
    def seconds(self) -> float:
        return self._pages[-1][0] - self._pages[0][0] if self._pages else 0.0

    def growth(self, name: str, *by: str) -> Groups:
        """How much a counter has grown in the window, for each set of values of these labels."""
        if len(self._pages) < 2:
            return {}
        before = self._pages[0][1].get(name, {})
        grown = {
            labels: value - before.get(labels, 0.0)
            for labels, value in self.page.get(name, {}).items()
        }
        return summed({name: grown}, name, *by)

    def rates(self, name: str, *by: str) -> Groups:
        """Growth in a second."""
        return {group: grown / self.seconds for group, grown in self.growth(name, *by).items()}

    def quantiles(self, name: str, share: float, *by: str) -> Groups:
        """Of a histogram; groups without observations are left out. See `quantile`."""
        histograms: dict[tuple[str, ...], dict[float, float]] = {}
        for (*group, bound), count in self.growth(f"{name}_bucket", *by, "le").items():
            histograms.setdefault(tuple(group), {})[float(bound)] = count
        found = {group: quantile(share, buckets) for group, buckets in histograms.items()}
        return {group: value for group, value in found.items() if value is not None}
