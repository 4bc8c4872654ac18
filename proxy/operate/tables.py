"""Prints the results of `doctor` and `models`. Called by `cli`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from build_engines.models_file import Entry, ModelsFile, RemoteEntry
from proxy.operate.doctor.checks import Check


def show_checks(checks: Iterable[Check]) -> None:
    console = Console(soft_wrap=True)
    for check in checks:
        mark, style = ("ok  ", "green") if check.ok else ("FAIL", "bold red")
        console.print(Text.assemble((mark, style), f"  {check.name}: {check.detail}"))
        if not check.ok:
            console.print(Text(f"      -> {check.remedy}", style="yellow"))


def show_models(models: ModelsFile, artifacts: Path) -> None:
    table = Table("name", "aliases", "runtime", "weights", "built", box=None)
    for name, entry in models.models.items():
        table.add_row(
            name,
            ", ".join(entry.aliases) or "-",
            entry.runtime,
            Text(_weights(entry), overflow="fold"),
            _built(name, entry, artifacts),
        )
    Console().print(table)


def _weights(entry: Entry) -> str:
    return "-" if isinstance(entry, RemoteEntry) else str(entry.weights)


def _built(name: str, entry: Entry, artifacts: Path) -> str:
    from build_engines.build import BuildError, is_built

    if isinstance(entry, RemoteEntry):
        return "-"
    try:
        return "yes" if is_built(name, entry, artifacts) else "no"
    except BuildError:
        return "no"
