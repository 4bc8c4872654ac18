"""What the counters of a proxy did in the last few intervals."""

from __future__ import annotations

from collections import deque

from proxy.operate.live.exposition import Groups, Page, increments, summed
from proxy.operate.live.quantile import quantile

INTERVALS = 5  # tokens are counted when a request ends, so that one interval alone would jump
Histograms = dict[tuple[str, ...], dict[float, float]]


class Window:
    """add(page) once an interval; rates are known from the second page on."""

    def __init__(self) -> None:
        self._last: tuple[float, Page] | None = None
        self._grown: deque[tuple[float, Page]] = deque(maxlen=INTERVALS)

    def add(self, page: Page, at_s: float) -> None:
        """at_s: on any clock, always the same."""
        if self._last is not None:
            before_s, before = self._last
            self._grown.append((at_s - before_s, increments(before, page)))
        self._last = (at_s, page)

    @property
    def page(self) -> Page:
        """The last one."""
        return {} if self._last is None else self._last[1]

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self._grown)

    def growth(self, name: str, *by: str) -> Groups:
        """How much a counter has grown in the window, for each set of values of these labels."""
        found: Groups = {}
        for _, grown in self._grown:
            for group, value in summed(grown, name, *by).items():
                found[group] = found.get(group, 0.0) + value
        return found

    def rates(self, name: str, *by: str) -> Groups:
        """Growth in a second."""
        seconds = self.seconds
        grown = self.growth(name, *by) if seconds > 0 else {}
        return {group: value / seconds for group, value in grown.items()}

    def quantiles(self, name: str, share: float, *by: str) -> Groups:
        """Of a histogram; groups without observations are left out. See `quantile`."""
        histograms: Histograms = {}
        for (*group, bound), count in self.growth(f"{name}_bucket", *by, "le").items():
            histograms.setdefault(tuple(group), {})[float(bound)] = count
        found = {group: quantile(share, buckets) for group, buckets in histograms.items()}
        return {group: value for group, value in found.items() if value is not None}
