"""Adds the commands of the administration to the command line. Called by `cli`."""

from __future__ import annotations

import typer

from proxy.operate.administration import (
    audit_commands,
    deployments_commands,
    endpoints_commands,
    keys_commands,
    log_commands,
    queue_commands,
    tenants_commands,
    top_commands,
    trace_commands,
    usage_commands,
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(tenants_commands.app, name="tenants")
    app.add_typer(keys_commands.app, name="keys")
    app.command()(usage_commands.usage)
    app.add_typer(audit_commands.app, name="audit")
    app.add_typer(endpoints_commands.app, name="endpoints")
    app.add_typer(deployments_commands.app, name="deployments")
    app.command()(queue_commands.queue)
    app.command()(log_commands.log_level)
    app.command()(top_commands.top)
    app.command()(trace_commands.trace)
