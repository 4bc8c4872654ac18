"""Tables of endpoints, deployments and results, for people. Used by the commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

STYLES = {"ready": "green", "draining": "yellow", "drained": "yellow"}
WIDE = 1000
Body = Mapping[str, Any]


def show_endpoints(answer: Body) -> None:
    table = Table(
        *("pool", Column("address", no_wrap=True), "state", "streams", "tokens"),
        *("waiting/running/KV", "models"),
        box=None,
    )
    for each in answer["data"]:
        load = each["load"]
        table.add_row(
            escape(each["pool"]),
            escape(each["address"]),
            _state(each),
            str(each["streams"]),
            str(each["outstanding_tokens"]),
            "/".join(
                (_number(load["waiting"]), _number(load["running"]), _share(load["kv_in_use"]))
            ),
            escape(", ".join(each["models"])) or "-",
        )
    _print(table)
    for address in answer["drained_and_gone"]:
        _print(f"drained, but in no pool at present: {escape(address)}")


def show_deployments(answer: Body) -> None:
    table = Table(
        *("model", "deployment", "share", "weight", "models.yaml", "pool", "Triton model"), box=None
    )
    for each in answer["data"]:
        version = "" if each["version"] is None else f" (version {each['version']})"
        table.add_row(
            escape(each["model"]),
            escape(each["name"]),
            _share(each["share"]),
            f"{each['weight']:g}",
            f"{each['configured_weight']:g}",
            escape(each["pool"]),
            escape(f"{each['triton_model']}{version}"),
        )
    _print(table)


def show_queues(answer: Body) -> None:
    """A line for each queue, and one for each of its tenants."""
    table = Table(*("queue", "tenant", "weight", "running", "waiting", "share"), box=None)
    for each in answer["data"]:
        bound = "" if each["capacity"] is None else f" of {each['capacity']}"
        running = f"{each['running']}{bound}"
        table.add_row(escape(each["queue"]), "", "", running, str(each["waiting"]), "")
        for one in each["tenants"]:
            table.add_row(
                *("", escape(one["tenant"]), f"{one['weight']:g}"),
                *(str(one["running"]), str(one["waiting"]), _share(one["share"])),
            )
        if (others := each["tenants_in_all"] - len(each["tenants"])) > 0:
            table.add_row("", f"and {others} more", "", "", "", "")
    _print(table)


def show_results(answer: Body) -> None:
    table = Table("pool", "address", "result", box=None)
    for each in answer["data"]:
        result = "[green]ok[/]" if each["error"] is None else f"[red]{escape(each['error'])}[/]"
        table.add_row(escape(each["pool"]), escape(each["address"]), result)
    _print(table)


def _state(endpoint: Body) -> str:
    state, reason = endpoint["state"], endpoint["reason"]
    shown = f"[{STYLES.get(state, 'red')}]{escape(state)}[/]"
    if endpoint["ejected_for_s"]:
        shown += f" for {endpoint['ejected_for_s']:.0f} s"
    return shown if reason is None else f"{shown}: {escape(reason)}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}" if value in (0, 1) else f"{value:.1%}"


def _print(what: Any) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:  # a file or a program, which need no line breaks
        console.width = WIDE
    console.print(what)
