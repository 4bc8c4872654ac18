"""One frame of `top`: what a proxy's metrics and its list of endpoints say, as tables of rich for a
terminal of any width, or a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from proxy.operate.administration.pools import STYLES
from proxy.telemetry.live_figures import (
    ENDPOINT_TOKENS,
    LAG,
    READY,
    model_figures,
    tenant_figures,
)
from proxy.telemetry.metrics_window import Window, summed

MOST_ROWS = 15  # of one table
WIDE = 80  # columns of the terminal: with fewer, ONLY_WIDE are left out
ONLY_WIDE = ("failed/s", "tok in/s", "pool")
Listing = Mapping[str, Any]


class Order(str, Enum):
    """By what rows are sorted, and the key that chooses it."""

    NAME = "n"
    REQUESTS = "r"
    TOKENS = "t"
    LATENCY = "l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Rates are in a second; a dash stands for an unknown value."""

    name: str
    # The largest come first; rows without a weight for the chosen order are sorted by name.
    weights: Mapping[Order, float]
    # By the heading of the column, in rich's markup. All rows of a table have the same columns.
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """It is drawn from the window as it is then."""

    url: str
    window: Window
    # Of /admin/v1/endpoints; None: it cannot be read.
    listing: Listing | None
    order: Order = Order.TOKENS
    # What the reader should know, such as that a key lacks a scope.
    notes: Sequence[str] = ()
    # Whether the reader can press keys.
    has_keys: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """An empty table is not shown."""
        yield self._head()
        yield from (Text(each, "yellow") for each in self.notes)
        for first, rows in (
            ("model", [*_models(self.window)]),
            ("endpoint", [*_endpoints(self.window, self.listing)]),
            ("tenant", [*_tenants(self.window)]),
        ):
            if rows:
                yield ""
                yield self._table(first, rows, is_wide=options.max_width >= WIDE)
            if (others := len(rows) - MOST_ROWS) > 0:
                yield f"and {others} more"

    def _head(self) -> Text:
        is_ready = bool(summed(self.window.page, READY).get((), 0.0))
        ready = ("ready", "green") if is_ready else ("not ready", "red")
        lag_p99 = self.window.quantiles(LAG, 0.99).get(())
        lag = "" if lag_p99 is None else f"  loop lag p99 {seconds(lag_p99)}"
        keys = "\nq quit  sort: n name, r requests, t tokens, l TTFT" if self.has_keys else ""
        return Text.assemble(
            (self.url, "bold"), "  ", ready, f"{lag}  last {self.window.seconds:.1f} s{keys}"
        )

    def _table(self, first: str, rows: Sequence[Row], *, is_wide: bool) -> Table:
        names = [name for name in rows[0].cells if is_wide or name not in ONLY_WIDE]
        table = Table(
            Column(first, no_wrap=True, overflow="ellipsis", ratio=1, min_width=12),
            *(
                Column(name, justify="left" if name in ("pool", "state") else "right", no_wrap=True)
                for name in names
            ),
            box=None,
            expand=True,
            pad_edge=False,
            header_style="bold",
        )
        ordered = sorted(rows, key=lambda row: (-row.weights.get(self.order, 0.0), row.name))
        for row in ordered[:MOST_ROWS]:
            table.add_row(escape(row.name), *(row.cells[name] for name in names))
        return table


def _models(window: Window) -> Iterator[Row]:
    for one in model_figures(window):
        failures = number(one.failures_per_s)
        yield Row(
            name=one.model,
            weights={
                Order.REQUESTS: one.requests_per_s,
                Order.TOKENS: one.completion_tokens_per_s,
                Order.LATENCY: one.ttft_p99_s or 0.0,
            },
            cells={
                "req/s": number(one.requests_per_s),
                "failed/s": f"[red]{failures}[/]" if one.failures_per_s else failures,
                "tok in/s": number(one.prompt_tokens_per_s),
                "run": number(one.running),
                "wait": number(one.waiting),
                "TTFT p50": seconds(one.ttft_p50_s),
                "p99": seconds(one.ttft_p99_s),
                "tok out/s": number(one.completion_tokens_per_s),
            },
        )


def _endpoints(window: Window, listing: Listing | None) -> Iterator[Row]:
    """With the load that their engines report, where the listing has it."""
    rates = window.rates(ENDPOINT_TOKENS, "pool", "endpoint")
    listed = {} if listing is None else {(e["pool"], e["address"]): e for e in listing["data"]}
    for pool, address in rates if listing is None else listed:
        tokens, known = rates.get((pool, address), 0.0), listed.get((pool, address), {})
        state, load = known.get("state"), known.get("load", {})
        in_use = load.get("kv_in_use")
        yield Row(
            name=address,
            weights={Order.TOKENS: tokens, Order.REQUESTS: tokens},
            cells={
                "pool": escape(pool),
                "state": f"[{STYLES.get(state, 'red')}]{escape(state)}[/]" if state else "-",
                "run": number(load.get("running")),
                "wait": number(load.get("waiting")),
                "KV": "-" if in_use is None else f"{in_use:.0%}",
                "tok/s": number(tokens),
            },
        )


def _tenants(window: Window) -> Iterator[Row]:
    for one in tenant_figures(window):
        yield Row(
            name=one.tenant,
            weights={
                Order.REQUESTS: one.requests_per_s,
                Order.TOKENS: one.completion_tokens_per_s,
            },
            cells={
                "req/s": number(one.requests_per_s),
                "tok in/s": number(one.prompt_tokens_per_s),
                "tok out/s": number(one.completion_tokens_per_s),
            },
        )


def number(value: float | None) -> str:
    """Two or three digits, and a unit from a thousand on."""
    if value is None:
        return "-"
    if 0 < value < 0.1:
        return f"{value:.1g}"
    for unit in ("", "k", "M"):
        if value < 999.5:
            digits = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
            return digits.removesuffix(".0") + unit
        value /= 1000
    return f"{value:.0f}G"


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"
