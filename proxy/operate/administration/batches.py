"""`triton-openai batches`: the batches of the caller whose key is given, in a running proxy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from proxy.operate.administration.answers import show_fields, show_table
from proxy.operate.administration.remote import AdminClient, KeyKind, calls_proxy, segment

batches = typer.Typer(help="Batches of the caller whose key is given.")

BATCHES = "/v1/batches"
CALLERS = KeyKind(variable="OPENAI_API_KEY", scope="batches")
BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, timezone.utc).isoformat(" ", "seconds").split("+")[0]


def _show_batches(answer: Mapping[str, Any]) -> None:
    rows = []
    for each in answer["data"]:
        counts = each["request_counts"]
        cells = (each["id"], each["status"], each["endpoint"], each["model"])
        rows.append((*cells, *counts.values(), _time(each["created_at"])))
    headings = ("id", "status", "endpoint", "model", "lines", "completed", "failed", "created")
    show_table(headings, rows)
    if answer["has_more"]:
        typer.echo(f"and older ones: --after {answer['last_id']}")


def _show_batch(answer: Mapping[str, Any]) -> None:
    known = {name: value for name, value in answer.items() if value is not None}
    show_fields({n: _time(v) if n.endswith("_at") else v for n, v in known.items()})


@batches.callback(invoke_without_command=True)
def _batches(context: typer.Context) -> None:
    """Batches of the caller whose key is given. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_batches()


@batches.command("list")
@calls_proxy(_show_batches, CALLERS)
def list_batches(
    proxy: AdminClient,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
    after: Annotated[
        str | None, typer.Option(help="Only those created before the batch with this id.")
    ] = None,
) -> Any:
    """List batches, the newest first."""
    older = "" if after is None else f"&after={segment(after)}"
    return proxy.call("GET", f"{BATCHES}?limit={limit}{older}")


@batches.command()
@calls_proxy(_show_batch, CALLERS)
def show(proxy: AdminClient, batch_id: BatchId) -> Any:
    """Show how far a batch is, and the files of its answers."""
    return proxy.call("GET", f"{BATCHES}/{segment(batch_id)}")


@batches.command()
@calls_proxy(_show_batch, CALLERS)
def cancel(proxy: AdminClient, batch_id: BatchId) -> Any:
    """End a batch. Its output has the requests that are answered."""
    return proxy.call("POST", f"{BATCHES}/{segment(batch_id)}/cancel")
