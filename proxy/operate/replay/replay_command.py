"""`triton-openai replay`"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

KEY_VARIABLE = "REPLAY_KEY"
From = Annotated[Path, typer.Option("--from", help="Folder of the records: RECORD_DIR.")]
To = Annotated[str, typer.Option(help="Address of the proxy that gets the requests.")]
Since = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="Only records from this time on, in UTC."
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, max=1000, help="Requests that run at once.")]
KeyFile = Annotated[
    Path | None, typer.Option(help=f"File with a key of that proxy. Default: ${KEY_VARIABLE}.")
]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM file to trust instead of the system's certificates.")
]
Output = Annotated[
    Path | None, typer.Option(help="File for one line of JSON a request, without texts.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if an answer differs.")]


def replay(
    folder: From,
    to: To,
    since: Since = None,
    tenant: Annotated[str | None, typer.Option(help="Only what this tenant sent.")] = None,
    model: Annotated[str | None, typer.Option(help="Only requests that name this model.")] = None,
    concurrency: Concurrency = 4,
    timeout_s: Annotated[float, typer.Option(min=1, help="Without a byte of an answer.")] = 600.0,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    output: Output = None,
    strict: Strict = False,
) -> None:
    """Send recorded requests to a proxy, and compare its answers with the recorded ones."""
    import asyncio
    from contextlib import ExitStack

    from proxy.domain.errors import LaunchError, counted
    from proxy.operate.administration.remote import given_key
    from proxy.operate.replay.comparison import Report
    from proxy.operate.replay.sender import Selection, client_of, send

    begin = None if since is None else since.replace(tzinfo=timezone.utc)
    chosen = Selection(since=begin, tenant=tenant, model=model)
    if not folder.is_dir():
        raise LaunchError(f"--from {folder} is not a folder")
    key = given_key(key_file, KEY_VARIABLE, "a key of the proxy that gets the requests")
    client = client_of(to, key=key, ca_file=ca_file, timeout_s=timeout_s, connections=concurrency)
    with ExitStack() as stack:
        lines = None if output is None else stack.enter_context(output.open("wb"))
        found = Report(lines)
        asyncio.run(send(chosen.of(folder), client, found.add, concurrency=concurrency))
    found.show()
    if left := chosen.passed_over + chosen.unreadable:
        typer.echo(
            f"{counted(left, 'record')} not sent: {chosen.passed_over} ended early, or by load or "
            f"access; {chosen.unreadable} cannot be read"
        )
    if not found.by_model:
        raise LaunchError(f"--from {folder} has no such records")
    if strict and found.has_differences:
        raise typer.Exit(1)
