"""The options of the commands that call a running proxy, and how they print its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

KEY_VARIABLE = "ADMIN_KEY"

Url = Annotated[
    str | None, typer.Option(help="The proxy's address. Default: HOST and PORT of the settings.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help=f"File with a key of the scope admin. Default: the variable {KEY_VARIABLE}."),
]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM file to trust instead of the system's certificates.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the proxy's answer as it is.")]


def show(answer: Any, table: Callable[[Any], None], *, as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        table(answer)
