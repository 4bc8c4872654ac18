"""One request for people: what it was, and its stages as bars. Also the list of recent ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

MARK = "█"
Stage = Mapping[str, Any]


def rows(stages: Sequence[Stage]) -> Iterator[tuple[int, Stage]]:
    """In the order in which they began, each followed by the stages that are part of it; with their
    depths, which are 0 for a stage that is part of no other.
    """
    parts: dict[int | None, list[int]] = {}
    for place, stage in enumerate(stages):
        parent = stage["parent"]
        # Only an earlier stage can be one's parent: whatever was sent, this ends.
        known = parent if parent is not None and 0 <= parent < place else None
        parts.setdefault(known, []).append(place)

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, Stage]]:
        for place in sorted(parts.get(parent, ()), key=lambda place: stages[place]["begin_ms"]):
            yield depth, stages[place]
            yield from below(place, depth + 1)

    yield from below(None, 0)


def bar(begin: float, duration: float, total: float, width: int) -> str:
    """A bar in a field of `width` characters that stands for 0 to `total`; at least one character
    long. What lies outside of the field is cut off.
    """
    if total <= 0:
        return MARK.ljust(width)
    begins, ends = (min(max(at, 0.0), total) / total for at in (begin, begin + duration))
    first = min(math.floor(begins * width), width - 1)
    last = max(math.ceil(ends * width), first + 1)
    return (" " * first + MARK * (last - first)).ljust(width)


Record = Mapping[str, Any]
LEAST_BAR = 10  # characters
WIDE = 80  # columns: with fewer, what a stage says is on the line below it
STYLES = {"queue": "yellow", "engine queue": "yellow", "prefill": "cyan", "decode": "green"}


def show_trace(record: Record, console: Console) -> None:
    console.print(Group(*_head(record), "", _bars(record, console.width)))


def show_recent(answer: Record, console: Console) -> None:
    if not answer["data"]:
        console.print("No request that has ended is known, or none that matches.")
        return
    table = Table(
        Column("request", no_wrap=True),
        Column("began", no_wrap=True),
        "model",
        "tenant",
        Column("ended", no_wrap=True),
        *(_right(name) for name in ("in", "out", "TTFT", "ms")),
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for each in answer["data"]:
        table.add_row(
            escape(each["id"]),
            each["began_at"][11:19],
            escape(each.get("model", "-")),
            escape(each.get("tenant", "-")),
            _ended(each),
            *(str(each.get(name, "-")) for name in ("prompt_tokens", "completion_tokens")),
            *(_ms(each.get(name)) for name in ("ttft_ms", "duration_ms")),
        )
    console.print(table)


def _head(record: Record) -> Iterator[Text]:
    also = f"  {record['answer_id']}" if "answer_id" in record else ""
    yield Text.assemble((record["id"], "bold"), also)
    words = [record["began_at"], *(str(record.get(name, "")) for name in ("method", "path"))]
    yield Text(" ".join(filter(None, words)))
    names = ("model", "tenant", "status", "finish", "error")
    facts = [f"{name} {record[name]}" for name in names if name in record]
    facts += [f"endpoint {each}" for each in record.get("endpoints", ())]
    yield Text("  ".join(facts))
    yield Text("  ".join(_figures(record)))


def _figures(record: Record) -> Iterator[str]:
    if "prompt_tokens" in record:
        cached = f" ({record['cached_tokens']} cached)" if record.get("cached_tokens") else ""
        yield f"tokens {record['prompt_tokens']}{cached} + {record.get('completion_tokens', 0)}"
    for name, field in (("TTFT", "ttft_ms"), ("queue", "queue_ms"), ("total", "duration_ms")):
        if field in record:
            yield f"{name} {_ms(record[field])} ms"
    for name in ("resent", "continued", "dropped_stages"):
        if record.get(name):
            yield f"{name.replace('_', ' ')} {record[name]}"


def _ended(record: Record) -> str:
    if "error" in record:
        return f"[red]{escape(record['error'])}[/]"
    return escape(str(record.get("finish", record.get("status", "-"))))


def _bars(record: Record, width: int) -> Table:
    total = record["duration_ms"]
    found = [
        (f"{'  ' * depth}{stage['name']}", _note(stage), stage)
        for depth, stage in rows(record["stages"])
    ]
    names = max(len("request"), *(len(name) for name, _, _ in found), 0)
    notes = min(max((len(note) for _, note, _ in found), default=0), width // 3)
    notes = notes if width >= WIDE else 0
    room = max(LEAST_BAR, width - names - len(f" {_ms(total)} ms") - (notes and notes + 1) - 1)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, width=names)
    table.add_column(no_wrap=True, width=room, overflow="ellipsis")
    table.add_column(no_wrap=True, justify="right")
    if notes:
        table.add_column(no_wrap=True, width=notes, overflow="ellipsis")
    table.add_row("request", bar(0, total, total, room), f"{_ms(total)} ms")
    for name, note, stage in found:
        drawn = bar(stage["begin_ms"], stage["duration_ms"], total, room)
        style = "red" if stage["error"] else STYLES.get(stage["name"], "blue")
        cells = (Text(name), Text(drawn, style), f"{_ms(stage['duration_ms'])} ms")
        table.add_row(*cells, *([Text(note)] if notes else []))
        if note and not notes:
            table.add_row("", Text(note))
    return table


def _note(stage: Stage) -> str:
    """What a stage says of itself, such as its endpoint."""
    words = [f"{name} {value}" for name, value in sorted(stage["attributes"].items())]
    return "  ".join([stage["error"], *words] if stage["error"] else words)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _right(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)
