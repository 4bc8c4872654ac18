"""`triton-openai tenants`, `keys`, `usage` and `audit`: the routes of /admin/v1, without a server.

They take the same words, and with --json print the same JSON. Heavy imports are inside the
functions, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.domain.account_fields import AccountField
from proxy.domain.errors import Conflict, ErrorCode, LaunchError, RequestError, in_short
from proxy.domain.identity import Scope
from proxy.domain.key_records import KEY_FIELDS, TENANT_CHANGES, TENANT_FIELDS
from proxy.operate.administration.account_options import takes
from proxy.operate.administration.answers import prints, show_fields, shows, words

if TYPE_CHECKING:
    from proxy.api.admin.admin_routes import Administration

tenants = typer.Typer(no_args_is_help=True, help="Tenants: who shares limits and usage.")
keys = typer.Typer(no_args_is_help=True, help="API keys: who may do what, on whose account.")
audit = typer.Typer(no_args_is_help=True, help="The log of changes and of denied admin calls.")

NEVER = datetime.max.replace(tzinfo=timezone.utc)
QUICK = "quick"  # tenant and name of a key that a stranger makes first
Fields = dict[str, Any]

TenantName = Annotated[str, typer.Argument(help="The tenant's name.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from sk-<id>-….")]
KeyName = Annotated[str | None, typer.Option(help="What people call the key.")]
AllModels = Annotated[bool, typer.Option("--all-models", help="Let it use every model.")]


def _columns(fields: Sequence[AccountField], *first: str) -> list[str]:
    names = [one.name for one in fields if one.shown.answer is not None]
    return [*first, *(name for name in names if name not in (*first, "overlap_until"))]


def _show_account(answer: Mapping[str, Any]) -> None:
    show_fields(answer)
    _warn_of_budget(answer)


def _show_new_tenant(answer: Mapping[str, Any]) -> None:
    _show_account(answer)
    if answer["max_priority"] is None:
        _warn(
            'its requests cannot go first: `priority` and metadata.priority (such as "high") are '
            "capped at 0, unless the proxy has MAX_PRIORITY, or the tenant a --max-priority"
        )


def _warn_of_budget(answer: Mapping[str, Any]) -> None:
    from build_engines.models_file import unpriced
    from proxy.operate import start, store
    from proxy.settings import Settings

    limits = [answer["limits"], *(answer.get("of_models") or {}).values()]
    if not any(each.get("monthly_budget") is not None for each in limits):
        return
    with suppress(LaunchError):  # models.yaml is wrong, which other commands say
        if names := unpriced(start.entries(Settings())):
            _warn(store.budget_note(names))


def _warn(text: str) -> None:
    typer.echo(f"warning: {text}", err=True)


def _show_issued(answer: Mapping[str, Any]) -> None:
    """The key alone on stdout, for `export OPENAI_API_KEY=$(…)`."""
    from proxy.operate import store

    show_fields({name: value for name, value in answer.items() if name != "key"}, to_stderr=True)
    _warn_of_budget(answer)
    typer.echo(
        f"It is in the store {store.name()}, which the proxy must use, too. "
        "The key is shown only now. Callers send it as `Authorization: Bearer KEY`; OpenAI's SDKs "
        "read it from OPENAI_API_KEY.",
        err=True,
    )
    typer.echo(answer["key"])


def _show_usage(answer: Sequence[Mapping[str, Any]]) -> None:
    """The last day first."""
    if not answer:
        typer.echo("nothing was used in these days")
        return
    rows = sorted(answer, key=lambda row: row.get("day", ""), reverse=True)
    shows(*rows[0])(rows)


def _show_entries(answer: Sequence[Mapping[str, Any]]) -> None:
    columns = ("number", "at", "actor", "action", "object", "change")
    shows(*columns)([{**each, "change": _change(each)} for each in answer])


def _change(entry: Mapping[str, Any]) -> str:
    """The fields that the change has set, in short. A new object shows no empty fields."""
    before, after = entry["before"] or {}, entry["after"] or {}
    new = {name: value for name, value in after.items() if before.get(name) != value}
    own = {name: value for name, value in new.items() if before or words(value) != "-"}
    return in_short(words({name: value for name, value in own.items() if name != "created_at"}))


@tenants.command("create")
@prints(_show_new_tenant)
@takes(TENANT_FIELDS, "create")
def create_tenant(name: TenantName, *, fields: Fields) -> Any:
    """Create a tenant. Its keys share its limits."""
    return _call("create_tenant", {"name": name, **fields})


@tenants.command("list")
@prints(shows(*_columns(TENANT_FIELDS, "name", "is_active")))
def list_tenants() -> Any:
    """List all tenants, the newest first."""
    return _newest_first("list_tenants")


@tenants.command("show")
@prints(show_fields)
def show_tenant(name: TenantName) -> Any:
    """Show one tenant."""
    return _call("show_tenant", tenant=name)


@tenants.command("update")
@prints(_show_account)
@takes(TENANT_CHANGES, "change")
def update_tenant(name: TenantName, *, fields: Fields) -> Any:
    """Change what is given, within a second in every proxy."""
    return _call("update_tenant", fields, tenant=name)


@tenants.command("delete")
@prints(show_fields)
def delete_tenant(name: TenantName) -> Any:
    """Delete a tenant whose keys are all revoked. Its usage is kept."""
    return _call("delete_tenant", tenant=name)


@keys.command("create")
@prints(_show_issued)
@takes(KEY_FIELDS, "create")
def create_key(
    tenant: Annotated[str | None, typer.Option(help="The tenant that the key belongs to.")] = None,
    name: KeyName = None,
    *,
    fields: Fields,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Fill in tenant and name ({QUICK}), and create the tenant if there is none.",
        ),
    ] = False,
) -> Any:
    """Create a key. It is printed only this once, alone on stdout."""
    if quick:
        tenant, name = tenant or QUICK, name or QUICK
    elif tenant is None or name is None:
        raise LaunchError("give the key's --tenant and --name, or --quick, which fills them in")
    body = {"tenant": tenant, "name": name, **fields}

    async def created(administration: Administration) -> Any:
        try:
            return await administration.call("create_key", body)
        except RequestError as error:
            if not quick or error.code is not ErrorCode.TENANT_NOT_FOUND:
                raise
        with suppress(Conflict):  # another command was faster
            await administration.call("create_tenant", {"name": tenant})
        return await administration.call("create_key", body)

    return _use(created)


@keys.command("list")
@prints(shows(*_columns(KEY_FIELDS)))
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's keys.")] = None,
) -> Any:
    """List keys, the newest first, revoked and expired ones too."""
    return _newest_first("list_keys", {"tenant": tenant})


@keys.command("show")
@prints(show_fields)
def show_key(key_id: KeyId) -> Any:
    """Show one key, without its secret."""
    return _call("show_key", key=key_id)


@keys.command("update")
@prints(_show_account)
@takes(KEY_FIELDS, "change")
def update_key(
    key_id: KeyId, name: KeyName = None, *, fields: Fields, all_models: AllModels = False
) -> Any:
    """Change what is given, within a second in every proxy."""
    if all_models:
        if fields.get("models"):
            raise LaunchError("--model and --all-models contradict each other: give one of them")
        fields["models"] = []
    if name is not None:
        fields["name"] = name
    return _change_key(key_id, "update_key", fields)


@keys.command("rotate")
@prints(_show_issued)
def rotate_key(
    key_id: KeyId,
    overlap_s: Annotated[
        int, typer.Option(help="Seconds for which the key from before is accepted, too.")
    ] = 86_400,
) -> Any:
    """Make a new secret under the same id. It is printed only this once, alone on stdout."""
    return _call("rotate_key", {"overlap_s": overlap_s}, key=key_id)


@keys.command("revoke")
@prints(show_fields)
def revoke_key(key_id: KeyId) -> Any:
    """End a key for good, within a second in every proxy."""
    return _change_key(key_id, "revoke_key")


@prints(_show_usage)
def usage(
    first: Annotated[
        str | None,
        typer.Option("--from", help="First day in UTC, such as 2026-03-01. Default: of the month."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="Last day, in UTC.", show_default="today")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's usage.")] = None,
    key: Annotated[str | None, typer.Option(help="Only the key with this id.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model, by public name.")] = None,
    by: Annotated[str, typer.Option(help="What to group by.")] = "day,tenant,key,model",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> Any:
    """Show requests, tokens, queue time and cost by day, tenant, key and model."""
    query = {"from": first, "to": last, "tenant": tenant, "key": key, "model": model, "by": by}
    if csv:
        typer.echo(_call("report_usage", {**query, "format": "csv"}), nl=False)
        raise typer.Exit
    return _call("report_usage", query)["data"]


@audit.command("list")
@prints(_show_entries)
def list_audit(
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> Any:
    """List entries, the newest first."""
    return _use(lambda it: it.store.audit.list(after=after, limit=limit, is_newest_first=True))


@audit.command("verify")
@prints(show_fields)
def verify_audit() -> Any:
    """Check that no entry was edited, deleted, moved or cut off; exit with 1 if one was."""
    return _call("verify_audit")


def _use(work: Callable[[Administration], Awaitable[Any]]) -> Any:
    from proxy.operate import store

    return store.use(work)


def _call(route: str, fields: Fields | None = None, **path: str) -> Any:
    return _use(lambda administration: administration.call(route, fields or {}, **path))


def _newest_first(route: str, query: Fields | None = None) -> Any:
    found = _use(lambda administration: administration.all(route, query or {}))
    return sorted(found, key=lambda each: str(each["created_at"]), reverse=True)


def _change_key(key_id: str, route: str, fields: Fields | None = None) -> Any:
    """Warns where it takes the last key that may administer."""

    async def is_administered(administration: Administration) -> bool:
        now = datetime.now(timezone.utc)
        return any(
            Scope.ADMIN in key.scopes and key.revoked_at is None and (key.expires_at or NEVER) > now
            for key in await administration.store.keys.list(limit=None)
        )

    async def changed(administration: Administration) -> Any:
        had_one = await is_administered(administration)
        key = await administration.call(route, fields or {}, key=key_id)
        if had_one and not await is_administered(administration):
            _warn(
                "no key administers this store over HTTP or the page any more; these commands "
                "still do: keys create --quick --scope admin"
            )
        return key

    return _use(changed)
