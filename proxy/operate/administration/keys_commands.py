"""`triton-openai keys …`"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from proxy.operate.administration import limit_options, priority_options
from proxy.operate.administration.limit_options import LimitOptions
from proxy.operate.administration.priority_options import MaxPriority

app = typer.Typer(no_args_is_help=True, help="API keys: who may do what, on whose account.")
NEVER = "never"
FROM_NOW = re.compile(r"(?P<number>[1-9][0-9]{0,5})(?P<unit>[dh])")
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1)}

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from sk-<id>-….")]
Name = Annotated[str | None, typer.Option(help="What people call the key.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        help="May be repeated: chat, completions, embeddings, tokens, models, metrics, kserve, "
        "admin. Default: the first five.",
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="A model it may use, with * and ?; may be repeated."),
]
Expires = Annotated[
    str | None,
    typer.Option(help="Such as 90d, 12h, 2027-01-31T12:00:00Z, or `never`."),
]


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="The tenant that the key belongs to.")],
    name: Annotated[str, typer.Option(help="What people call the key.")],
    scope: Scopes = None,
    model: Models = None,
    limit: LimitOptions = None,
    max_priority: MaxPriority = None,
    expires: Expires = None,
) -> None:
    """Create a key. The key itself is printed only this once."""
    from proxy.access.store.record_rows import key_view
    from proxy.api.admin.admin_bodies import KeyBody
    from proxy.operate.administration import session

    fields = session.given(
        tenant=tenant,
        name=name,
        scopes=scope,
        models=model,
        limits=limit_options.limits(limit or ()),
    )
    more = {**_expiry(expires), **priority_options.fields(max_priority=max_priority)}
    body = session.filled(KeyBody, {**fields, **more})
    made = session.use(lambda admin: admin.keys.create(session.actor(), body.to_domain()))
    session.show({**key_view(made.record), "key": made.key})


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's keys.")] = None,
) -> None:
    """List keys, revoked and expired ones too."""
    from proxy.access.store.record_rows import key_view
    from proxy.operate.administration import session

    found = session.use(lambda admin: admin.keys.list(tenant=tenant, limit=None))
    session.show([key_view(key) for key in found])


@app.command()
def show(key_id: KeyId) -> None:
    """Show one key, without its secret."""
    from proxy.access.store.record_rows import key_view
    from proxy.operate.administration import session

    session.show(key_view(session.use(lambda admin: admin.keys.show(key_id))))


@app.command()
def update(
    key_id: KeyId,
    name: Name = None,
    scope: Scopes = None,
    model: Models = None,
    all_models: Annotated[
        bool, typer.Option("--all-models", help="Let it use every model.")
    ] = False,
    limit: LimitOptions = None,
    max_priority: MaxPriority = None,
    expires: Expires = None,
) -> None:
    """Change what is given, within a second in every proxy."""
    from proxy.access.store.record_rows import key_view
    from proxy.api.admin.admin_bodies import KeyChanges
    from proxy.operate.administration import session
    from proxy.processes.errors import LaunchError

    if model and all_models:
        raise LaunchError("--model and --all-models contradict each other: give one of them")
    fields = session.given(
        name=name,
        scopes=scope,
        models=[] if all_models else model,
        limits=None if limit is None else limit_options.limits(limit),
    )
    more = {**_expiry(expires), **priority_options.fields(max_priority=max_priority)}
    body = session.filled(KeyChanges, {**fields, **more})
    changed = session.use(lambda admin: admin.keys.update(session.actor(), key_id, body.applied))
    session.show(key_view(changed))


@app.command()
def rotate(
    key_id: KeyId,
    overlap_s: Annotated[
        int, typer.Option(help="Seconds for which the key from before is accepted, too.")
    ] = 86_400,
) -> None:
    """Make a new secret under the same id. The new key is printed only this once."""
    from proxy.access.store.record_rows import key_view
    from proxy.api.admin.admin_bodies import Rotation
    from proxy.operate.administration import session

    body = session.filled(Rotation, {"overlap_s": overlap_s})
    made = session.use(lambda admin: admin.keys.rotate(session.actor(), key_id, body.overlap))
    session.show({**key_view(made.record), "key": made.key})


@app.command()
def revoke(key_id: KeyId) -> None:
    """End a key for good, within a second in every proxy."""
    from proxy.access.store.record_rows import key_view
    from proxy.operate.administration import session

    session.show(key_view(session.use(lambda admin: admin.keys.revoke(session.actor(), key_id))))


def _expiry(option: str | None) -> dict[str, str | None]:
    """The field `expires_at`, if the option was given."""
    if option is None:
        return {}
    if option == NEVER:
        return {"expires_at": None}
    if match := FROM_NOW.fullmatch(option):
        at = datetime.now(timezone.utc) + int(match["number"]) * UNITS[match["unit"]]
        return {"expires_at": at.isoformat()}
    return {"expires_at": option}
