"""`triton-openai top`, `trace` and `log-level`: what a running proxy does, and says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from proxy.domain.errors import LaunchError
from proxy.domain.log_level import LogLevel
from proxy.operate.administration.remote import (
    AdminClient,
    CaFile,
    KeyFile,
    Url,
    calls_proxy,
    client,
    segment,
)

REQUESTS, LOG_LEVEL = "/admin/v1/requests", "/admin/v1/log-level"


def top(
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two frames.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame, after one interval, and exit.")
    ] = False,
) -> None:
    """Show live what a running proxy does: models, endpoints, tenants.

    Into a file or another program, it prints one frame after the other.
    """
    from proxy.operate.live import top as live

    with client(url, key_file, ca_file) as proxy:
        live.show(proxy, interval, is_once=once)


def _show_requests(answer: Mapping[str, Any]) -> None:
    from proxy.operate.live import trace_view
    from proxy.operate.live.top import WHOLE_LINES, console

    if "data" in answer:
        trace_view.show_recent(answer, console(WHOLE_LINES))
    else:
        trace_view.show_trace(answer, console())


@calls_proxy(_show_requests)
def trace(
    proxy: AdminClient,
    request: Annotated[
        str | None, typer.Argument(help="Its `x-request-id`, or the `id` of its answer.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="List: only requests for this model.")] = None,
    tenant: Annotated[str | None, typer.Option(help="List: only this tenant's.")] = None,
    min_ms: Annotated[
        float | None, typer.Option(min=0, help="List: only those that took so long.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="List: only those with an error.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, max=200, help="List: how many at most.")
    ] = None,
) -> Any:
    """Show where the time of a request went. Without one: list those that ended last."""
    options = {"model": model, "tenant": tenant, "min_ms": min_ms, "failed": failed, "limit": limit}
    filters = {
        name: "true" if value is True else str(value)
        for name, value in options.items()
        if value is not None and value is not False
    }
    if request is None:
        return proxy.call("GET", f"{REQUESTS}?{urlencode(filters)}")
    if filters:
        option = next(iter(filters)).replace("_", "-")
        raise LaunchError(f"--{option} filters a list: give no id with it")
    return proxy.call("GET", f"{REQUESTS}/{segment(request)}")


def _show_level(answer: Mapping[str, Any]) -> None:
    left_s = answer["returns_in_s"]
    end = "" if left_s is None else f" for {left_s:g} s more"
    typer.echo(f"{answer['level']}{end} (LOG_LEVEL: {answer['configured']})")


@calls_proxy(_show_level)
def log_level(
    proxy: AdminClient,
    level: Annotated[
        LogLevel | None, typer.Argument(help="The new level. Without it: show the present one.")
    ] = None,
    for_s: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds after which LOG_LEVEL holds again. Default: no end."),
    ] = None,
) -> Any:
    """Show or change the level of a running proxy's log."""
    if level is not None:
        return proxy.call("PUT", LOG_LEVEL, {"level": level.value, "for_s": for_s})
    if for_s is not None:
        raise LaunchError("--for-s needs a level: triton-openai log-level debug --for-s 600")
    return proxy.call("GET", LOG_LEVEL)
