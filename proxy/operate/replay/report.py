"""What `replay` prints: a table by model, and a line of JSON for each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import IO

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.operate.replay.comparison import (
    FINISH,
    NO_ANSWER,
    STATUS,
    TEXT,
    USAGE,
    Comparison,
)

WIDE = 1000
KINDS = (STATUS, FINISH, USAGE, TEXT, NO_ANSWER)


@dataclass(slots=True)
class ModelTotals:
    """requests: sent. compared: those whose text was, too. Ratios: today's by the recorded time."""

    requests: int = 0
    compared: int = 0
    same: int = 0
    differ: Counter[str] = field(default_factory=Counter)
    ttft_ratios: list[float] = field(default_factory=list)
    duration_ratios: list[float] = field(default_factory=list)

    def add(self, one: Comparison) -> None:
        self.requests += 1
        self.compared += one.is_deterministic
        self.same += not one.differs
        self.differ.update(one.differs)
        for ratios, ratio in (
            (self.ttft_ratios, one.ttft_ratio),
            (self.duration_ratios, one.duration_ratio),
        ):
            if ratio is not None:
                ratios.append(ratio)


class Report:
    """lines: where the lines of JSON go; None: nowhere."""

    def __init__(self, lines: IO[bytes] | None) -> None:
        self._lines = lines
        self.by_model: dict[str, ModelTotals] = {}

    @property
    def has_differences(self) -> bool:
        return any(each.differ for each in self.by_model.values())

    def add(self, one: Comparison) -> None:
        self.by_model.setdefault(one.recorded.model or "-", ModelTotals()).add(one)
        if self._lines is not None:
            option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
            self._lines.write(orjson.dumps(one.as_json(), option=option))


def show(by_model: Mapping[str, ModelTotals]) -> None:
    table = Table(
        *("model", "requests", "same", *KINDS, "texts compared", "TTFT", "duration"), box=None
    )
    for model, totals in sorted(by_model.items()):
        table.add_row(
            escape(model),
            str(totals.requests),
            str(totals.same),
            *(str(totals.differ[kind]) for kind in KINDS),
            str(totals.compared),
            _ratio(totals.ttft_ratios),
            _ratio(totals.duration_ratios),
        )
    Console(width=WIDE).print(table)


def _ratio(ratios: Iterable[float]) -> str:
    """The median."""
    found = list(ratios)
    return f"x{median(found):.2f}" if found else "-"
