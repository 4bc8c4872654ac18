"""`triton-openai trace`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from proxy.operate.administration.remote_options import AsJson, CaFile, KeyFile, Url
from proxy.processes.errors import LaunchError

if TYPE_CHECKING:
    from proxy.operate.administration.remote import Remote

PATH = "/admin/v1/requests"


def trace(
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
    url: Url = None,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show where the time of a request went. Without one: list those that ended last."""
    from proxy.operate.administration.remote import remote

    filters = _filters(model=model, tenant=tenant, min_ms=min_ms, failed=failed, limit=limit)
    proxy = remote(url, key_file, ca_file)
    if request is None:
        _show_list(proxy, filters, as_json)
    elif filters:
        option = next(iter(filters)).replace("_", "-")
        raise LaunchError(f"--{option} filters a list: give no id with it")
    else:
        _show_one(proxy, request, as_json)


def _show_list(proxy: Remote, filters: Mapping[str, str], as_json: bool) -> None:
    from proxy.operate.administration import remote_options
    from proxy.operate.live import screen, trace_view

    remote_options.show(
        proxy.call("GET", f"{PATH}?{urlencode(filters)}"),
        lambda found: trace_view.show_recent(found, screen.table_console()),
        as_json=as_json,
    )


def _show_one(proxy: Remote, request: str, as_json: bool) -> None:
    from proxy.operate.administration import remote_options
    from proxy.operate.administration.remote import segment
    from proxy.operate.live import screen, trace_view

    remote_options.show(
        proxy.call("GET", f"{PATH}/{segment(request)}"),
        lambda found: trace_view.show_trace(found, screen.console()),
        as_json=as_json,
    )


def _filters(**options: Any) -> dict[str, str]:
    """Those that were given, as the route takes them."""
    return {
        name: "true" if value is True else str(value)
        for name, value in options.items()
        if value is not None and value is not False
    }
