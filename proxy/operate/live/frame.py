"""One frame of `top`: an overview as tables of rich, for a terminal of any width, or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from proxy.operate.administration.pools import STYLES
from proxy.operate.live.overview import EndpointRow, ModelRow, Overview, TenantRow

MOST_ROWS = 15  # of one table
WIDE = 80  # columns of the terminal: with fewer, some of the tables' are left out
Row = TypeVar("Row", ModelRow, EndpointRow, TenantRow)


class Order(str, Enum):
    """By what rows are sorted, and the key that chooses it."""

    NAME = "n"
    REQUESTS = "r"
    TOKENS = "t"
    LATENCY = "l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """notes: what the reader should know, such as that a key lacks a scope. has_keys: whether the
    reader can press some.
    """

    overview: Overview
    url: str
    order: Order = Order.TOKENS
    notes: Sequence[str] = ()
    has_keys: bool = False

    def rendered(self, width: int) -> RenderableType:
        is_wide = width >= WIDE
        seen = self.overview
        parts: list[RenderableType] = [self._head(), *(Text(each, "yellow") for each in self.notes)]
        for table in (
            self._table(_models, seen.models, is_wide),
            self._table(_endpoints, seen.endpoints, is_wide),
            self._table(_tenants, seen.tenants, is_wide),
        ):
            parts += ["", *table] if table else []
        return Group(*parts)

    def _head(self) -> Text:
        seen = self.overview
        ready = ("ready", "green") if seen.is_ready else ("not ready", "red")
        lag = "" if seen.lag_p99 is None else f"  loop lag p99 {seconds(seen.lag_p99)}"
        keys = "\nq quit  sort: n name, r requests, t tokens, l TTFT" if self.has_keys else ""
        return Text.assemble(
            (self.url, "bold"), "  ", ready, f"{lag}  last {seen.seconds:.1f} s{keys}"
        )

    def _table(
        self,
        made: Callable[[Sequence[Row], bool], Table],
        rows: Sequence[Row],
        is_wide: bool,
    ) -> list[RenderableType]:
        ordered = sorted(rows, key=lambda row: _rank(row, self.order))
        shown: list[RenderableType] = [made(ordered[:MOST_ROWS], is_wide)] if rows else []
        if (others := len(rows) - MOST_ROWS) > 0:
            shown.append(f"and {others} more")
        return shown


def _models(rows: Sequence[ModelRow], is_wide: bool) -> Table:
    wide = ("failed/s", "tok in/s") if is_wide else ()
    table = _new("model", "req/s", *wide, "run", "wait", "TTFT p50", "p99", "tok out/s")
    for row in rows:
        table.add_row(
            escape(row.name),
            number(row.requests),
            *((_failures(row.failures), number(row.tokens_in)) if is_wide else ()),
            number(row.running),
            number(row.waiting),
            seconds(row.ttft_p50),
            seconds(row.ttft_p99),
            number(row.tokens_out),
        )
    return table


def _endpoints(rows: Sequence[EndpointRow], is_wide: bool) -> Table:
    table = _new("endpoint", *(["pool"] if is_wide else []), "state", "run", "wait", "KV", "tok/s")
    for row in rows:
        state = row.state or "-"
        table.add_row(
            escape(row.address),
            *([escape(row.pool)] if is_wide else []),
            f"[{STYLES.get(state, 'red')}]{escape(state)}[/]" if row.state else state,
            number(row.running),
            number(row.waiting),
            "-" if row.kv_in_use is None else f"{row.kv_in_use:.0%}",
            number(row.tokens),
        )
    return table


def _tenants(rows: Sequence[TenantRow], is_wide: bool) -> Table:
    wide = ["tok in/s"] if is_wide else []
    table = _new("tenant", "req/s", *wide, "tok out/s")
    for row in rows:
        tokens_in = [number(row.tokens_in)] if is_wide else []
        table.add_row(escape(row.name), number(row.requests), *tokens_in, number(row.tokens_out))
    return table


def _new(first: str, *others: str) -> Table:
    columns: Iterable[Column] = (
        Column(name, justify="left" if name in ("pool", "state") else "right", no_wrap=True)
        for name in others
    )
    return Table(
        Column(first, no_wrap=True, overflow="ellipsis", ratio=1, min_width=12),
        *columns,
        box=None,
        expand=True,
        pad_edge=False,
        header_style="bold",
    )


def _rank(row: ModelRow | EndpointRow | TenantRow, order: Order) -> tuple[float, str]:
    name = row.address if isinstance(row, EndpointRow) else row.name
    return -_weight(row, order), name


def _weight(row: ModelRow | EndpointRow | TenantRow, order: Order) -> float:
    if isinstance(row, EndpointRow):
        return row.tokens if order in (Order.TOKENS, Order.REQUESTS) else 0.0
    if order is Order.REQUESTS:
        return row.requests
    if order is Order.TOKENS:
        return row.tokens_out
    if order is Order.LATENCY and isinstance(row, ModelRow):
        return row.ttft_p99 or 0.0
    return 0.0


def _failures(rate: float) -> str:
    return f"[red]{number(rate)}[/]" if rate else number(rate)


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
