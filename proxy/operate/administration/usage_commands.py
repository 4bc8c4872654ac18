"""`triton-openai usage`"""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def usage(
    first: Annotated[
        str | None, typer.Option("--from", help="First day, in UTC.", show_default="of the month")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="Last day, in UTC.", show_default="today")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's usage.")] = None,
    key: Annotated[str | None, typer.Option(help="Only the key with this id.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model, by public name.")] = None,
    by: Annotated[str, typer.Option(help="What the rows are apart by.")] = "day,tenant,key,model",
    format: Annotated[Literal["json", "csv"], typer.Option(help="How to print it.")] = "json",
) -> None:
    """Show requests, tokens, queue time and cost by day, tenant, key and model."""
    from proxy.access.store.usage_reports import as_csv
    from proxy.api.admin.admin_answers import usage_body
    from proxy.api.admin.admin_queries import UsageQuery
    from proxy.domain.errors import InvalidRequest
    from proxy.operate.administration import session
    from proxy.processes.errors import LaunchError

    options = {"from": first, "to": last, "tenant": tenant, "key": key, "model": model, "by": by}
    query = session.filled(UsageQuery, session.given(**options))
    try:
        period = query.period
    except InvalidRequest as error:
        raise LaunchError(error.message) from None
    rows = session.use(lambda admin: admin.usage.report(period, query.groups))
    if format == "csv":
        typer.echo(as_csv(rows), nl=False)
    else:
        session.show(usage_body(rows))
