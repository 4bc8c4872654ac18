"""The forms of queries that most panels have."""

from __future__ import annotations

from dashboards.panel import Query

INTERVAL = "$__rate_interval"
MODEL = 'model=~"$model"'


def rate(metric: str, *by: str, where: str = "") -> str:
    """A counter's growth a second, added up over all series with the same labels `by`."""
    return f"sum{_by(by)} (rate({metric}{_braces(where)}[{INTERVAL}]))"


def total(metric: str, *by: str, where: str = "") -> str:
    """A gauge, added up over all series with the same labels `by`."""
    return f"sum{_by(by)} ({metric}{_braces(where)})"


def ratio(above: str, below: str, *by: str, where: str = "") -> str:
    """The share of one counter in another, over the same labels."""
    return f"{rate(above, *by, where=where)} / {rate(below, *by, where=where)}"


def quantile(share: float, histogram: str, *by: str, where: str = "") -> str:
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', *by, 'le', where=where)})"


def quantiles(
    histogram: str, *, where: str = MODEL, has_exemplars: bool = False
) -> tuple[Query, ...]:
    """The median, and what one request in twenty, and one in a hundred, takes longer than."""
    return tuple(
        Query(
            expr=quantile(share, histogram, where=where),
            legend=legend,
            # Each query would bring the same ones.
            has_exemplars=has_exemplars and legend == "p99",
        )
        for share, legend in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _braces(where: str) -> str:
    return f"{{{where}}}" if where else ""
