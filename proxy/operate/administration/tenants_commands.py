"""`triton-openai tenants …`"""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.operate.administration import limit_options, priority_options
from proxy.operate.administration.limit_options import LimitOptions, ModelLimitOptions
from proxy.operate.administration.priority_options import MaxPriority, Weight

app = typer.Typer(no_args_is_help=True, help="Tenants: who shares limits and usage.")
Name = Annotated[str, typer.Argument(help="The tenant's name.")]
Records = Annotated[
    bool | None,
    typer.Option(
        "--records/--no-records",
        help="Whether requests and answers are recorded for replay, where RECORD_DIR is set.",
    ),
]


@app.command()
def create(
    name: Name,
    limit: LimitOptions = None,
    model_limit: ModelLimitOptions = None,
    weight: Weight = None,
    max_priority: MaxPriority = None,
    records: Records = None,
) -> None:
    """Create a tenant. Its keys share its limits."""
    from proxy.access.store.record_rows import tenant_view
    from proxy.api.admin.admin_bodies import TenantBody
    from proxy.operate.administration import session

    fields = {
        "name": name,
        "limits": limit_options.limits(limit or ()),
        "of_models": limit_options.of_models(model_limit or ()),
        **priority_options.fields(weight=weight, max_priority=max_priority),
        "records": bool(records),
    }
    body = session.filled(TenantBody, fields)
    made = session.use(
        lambda admin: admin.tenants.create(session.actor(), body.name, **body.options)
    )
    session.show(tenant_view(made))


@app.command("list")
def list_() -> None:
    """List all tenants."""
    from proxy.access.store.record_rows import tenant_view
    from proxy.operate.administration import session

    found = session.use(lambda admin: admin.tenants.list(limit=None))
    session.show([tenant_view(tenant) for tenant in found])


@app.command()
def show(name: Name) -> None:
    """Show one tenant."""
    from proxy.access.store.record_rows import tenant_view
    from proxy.operate.administration import session

    session.show(tenant_view(session.use(lambda admin: admin.tenants.show(name))))


@app.command()
def update(
    name: Name,
    limit: LimitOptions = None,
    model_limit: ModelLimitOptions = None,
    active: Annotated[
        bool | None,
        typer.Option("--active/--inactive", help="Whether the tenant's keys are accepted."),
    ] = None,
    weight: Weight = None,
    max_priority: MaxPriority = None,
    records: Records = None,
) -> None:
    """Change what is given, within a second in every proxy."""
    from proxy.access.store.record_rows import tenant_view
    from proxy.api.admin.admin_bodies import TenantChanges
    from proxy.operate.administration import session

    changes = session.given(
        limits=None if limit is None else limit_options.limits(limit),
        of_models=None if model_limit is None else limit_options.of_models(model_limit),
        is_active=active,
        records=records,
    )
    priorities = priority_options.fields(weight=weight, max_priority=max_priority)
    body = session.filled(TenantChanges, {**changes, **priorities})
    changed = session.use(lambda admin: admin.tenants.update(session.actor(), name, body.applied))
    session.show(tenant_view(changed))


@app.command()
def delete(name: Name) -> None:
    """Delete a tenant whose keys are all revoked. Its usage is kept."""
    from proxy.access.store.record_rows import tenant_view
    from proxy.operate.administration import session

    deleted = session.use(lambda admin: admin.tenants.delete(session.actor(), name))
    session.show(tenant_view(deleted))
