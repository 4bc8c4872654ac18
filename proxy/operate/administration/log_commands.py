"""`triton-openai log-level`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from proxy.domain.log_level import LogLevel
from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url

PATH = "/admin/v1/log-level"


def log_level(
    level: Annotated[
        LogLevel | None, typer.Argument(help="The new level. Without it: show the present one.")
    ] = None,
    for_s: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds after which LOG_LEVEL holds again. Default: no end."),
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show or change the level of a running proxy's log."""
    from proxy.operate.administration import remote_options
    from proxy.operate.administration.remote import remote
    from proxy.processes.errors import LaunchError

    proxy = remote(url, key_file, ca_file)
    if level is not None:
        answer = proxy.call("PUT", PATH, {"level": level.value, "for_s": for_s})
    elif for_s is None:
        answer = proxy.call("GET", PATH)
    else:
        raise LaunchError("--for-s needs a level: triton-openai log-level debug --for-s 600")
    remote_options.show(answer, _show, as_json=as_json)


def _show(answer: Mapping[str, Any]) -> None:
    left_s = answer["returns_in_s"]
    end = "" if left_s is None else f" for {left_s:g} s more"
    typer.echo(f"{answer['level']}{end} (LOG_LEVEL: {answer['configured']})")
