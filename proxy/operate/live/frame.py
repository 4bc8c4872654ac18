"""One frame of `top`: what a proxy sends of its live status, as tables of rich for a terminal of
any width, or a file.
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

MOST_ROWS = 15  # of one table
WIDE = 80  # columns of the terminal: with fewer, ONLY_WIDE are left out
ONLY_WIDE = ("failed/s", "tok in/s", "pool")
Json = Mapping[str, Any]


class Order(str, Enum):
    """By what rows are sorted, and the key that chooses it."""

    NAME = "n"
    REQUESTS = "r"
    TOKENS = "t"
    LATENCY = "l"


# The figures by which rows are sorted, the largest first; rows without them are sorted by name.
WEIGHTS: Mapping[Order, Sequence[str]] = {
    Order.NAME: (),
    Order.REQUESTS: ("requests_per_s", "tokens_per_s"),
    Order.TOKENS: ("completion_tokens_per_s", "tokens_per_s"),
    Order.LATENCY: ("ttft_p99_s",),
}
Row = tuple[str, Json, Mapping[str, str]]
"""Name, figures, and cells by the heading of their column, in rich's markup. Rates are in a second;
a dash stands for an unknown value. All rows of a table have the same columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    url: str
    # Of /metrics/live: the figures, and their columns by kind.
    live: Json
    columns: Mapping[str, Sequence[Json]]
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
            ("model", [*self._rows("models", "model")]),
            ("endpoint", [*_endpoints(self.live["endpoints"])]),
            ("tenant", [*self._rows("tenants", "tenant")]),
            ("batches", [*self._rows("batches", "batches")]),
        ):
            if rows:
                yield ""
                yield self._table(first, rows, is_wide=options.max_width >= WIDE)
            if (others := len(rows) - MOST_ROWS) > 0:
                yield f"and {others} more"

    def _head(self) -> Text:
        ready = ("ready", "green") if self.live["is_ready"] else ("not ready", "red")
        lag_p99 = self.live["loop_lag_p99_s"]
        lag = "" if lag_p99 is None else f"  loop lag p99 {seconds(lag_p99)}"
        keys = "\nq quit  sort: n name, r requests, t tokens, l TTFT" if self.has_keys else ""
        return Text.assemble(
            (self.url, "bold"), "  ", ready, f"{lag}  last {self.live['window_s']:.1f} s{keys}"
        )

    def _rows(self, kind: str, name: str) -> Iterator[Row]:
        for each in self.live.get(kind, ()):  # older releases have no batches
            columns = self.columns[kind]
            cells = {one["heading"]: _cell(one["unit"], each[one["name"]]) for one in columns}
            yield each[name], each, cells

    def _table(self, first: str, rows: Sequence[Row], *, is_wide: bool) -> Table:
        names = [name for name in rows[0][2] if is_wide or name not in ONLY_WIDE]
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

        def rank(row: Row) -> tuple[float, str]:
            return -sum(row[1].get(figure) or 0.0 for figure in WEIGHTS[self.order]), row[0]

        for name, _, cells in sorted(rows, key=rank)[:MOST_ROWS]:
            table.add_row(escape(name), *(cells[heading] for heading in names))
        return table


def _cell(unit: str, value: float | None) -> str:
    if unit == "seconds":
        return seconds(value)
    return f"[red]{number(value)}[/]" if unit == "failures" and value else number(value)


def _endpoints(endpoints: Sequence[Json]) -> Iterator[Row]:
    """With state and load of their engines, where the reader may see them."""
    for one in endpoints:
        state, load = one.get("state"), one.get("load", {})
        in_use = load.get("kv_in_use")
        cells = {
            "pool": escape(one["pool"]),
            "state": f"[{STYLES.get(state, 'red')}]{escape(state)}[/]" if state else "-",
            "run": number(load.get("running")),
            "wait": number(load.get("waiting")),
            "KV": "-" if in_use is None else f"{in_use:.0%}",
            "tok/s": number(one["tokens_per_s"]),
        }
        yield one["address"], one, cells


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
