"""`triton-openai tenants`, `keys`, `usage` and `audit`: what /admin/v1 does, without a server.

They take the same words, and with --json print the same JSON. Heavy imports are inside the
functions, so that `--help` is fast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields as fields_of
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
import typer
from pydantic import BaseModel, ValidationError

from proxy.domain import identity
from proxy.domain.errors import Conflict, LaunchError, in_short
from proxy.operate.administration.answers import prints, show_fields, shows, words

if TYPE_CHECKING:
    from proxy.access.store.records import IssuedKey
    from proxy.access.store.store import Store
    from proxy.domain.key_records import KeyRecord, TenantRecord

tenants = typer.Typer(no_args_is_help=True, help="Tenants: who shares limits and usage.")
keys = typer.Typer(no_args_is_help=True, help="API keys: who may do what, on whose account.")
audit = typer.Typer(no_args_is_help=True, help="The log of changes and of denied admin calls.")

NONE, NEVER = "none", "never"
QUICK = "quick"  # tenant and name of a key that a stranger makes first
OF_MODEL = re.compile(r"(?P<model>.+):(?P<limit>[a-z_]+=.*)")
FROM_NOW = re.compile(r"(?P<number>[1-9][0-9]{0,5})(?P<unit>[dh])")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)")
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1)}
Body = TypeVar("Body", bound=BaseModel)
T = TypeVar("T")

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        help="Such as requests_per_minute=60; `none` removes it. May be repeated. Names: "
        f"{', '.join(each.name for each in fields_of(identity.Limits))}.",
    ),
]
ModelLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--model-limit",
        metavar="MODEL:NAME=VALUE",
        help="The same for the use of one model; MODEL:none removes all of its limits.",
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="Of its share where tenants compete for a model, from 0.01 to 1000; `none` for 1.",
    ),
]
MaxPriority = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="The highest priority that its requests get; higher numbers go first. `none` for no "
        "ceiling of its own.",
    ),
]
Records = Annotated[
    bool | None,
    typer.Option(
        "--records/--no-records",
        help="Whether requests and answers are recorded for replay, where RECORD_DIR is set.",
    ),
]
TenantName = Annotated[str, typer.Argument(help="The tenant's name.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from sk-<id>-….")]
KeyName = Annotated[str | None, typer.Option(help="What people call the key.")]
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


TENANT_COLUMNS = (
    *("name", "is_active", "limits", "of_models", "weight", "max_priority", "records"),
    "created_at",
)
KEY_COLUMNS = (
    *("id", "tenant", "name", "scopes", "models", "limits", "max_priority"),
    *("created_at", "expires_at", "revoked_at"),
)


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
def create_tenant(
    name: TenantName,
    limit: Limits = None,
    model_limit: ModelLimits = None,
    weight: Weight = None,
    max_priority: MaxPriority = None,
    records: Records = None,
) -> Any:
    """Create a tenant. Its keys share its limits."""
    from proxy.api.admin.admin_bodies import TenantBody

    body = _filled(
        TenantBody,
        name=name,
        limit=limit,
        model_limit=model_limit,
        weight=weight,
        max_priority=max_priority,
        records=records,
    )
    return _record(lambda store, actor: store.tenants.create(actor, body.name, **body.options))


@tenants.command("list")
@prints(shows(*TENANT_COLUMNS))
def list_tenants() -> Any:
    """List all tenants, the newest first."""
    return _records(lambda store, _: store.tenants.list(limit=None))


@tenants.command("show")
@prints(show_fields)
def show_tenant(name: TenantName) -> Any:
    """Show one tenant."""
    return _record(lambda store, _: store.tenants.show(name))


@tenants.command("update")
@prints(_show_account)
def update_tenant(
    name: TenantName,
    limit: Limits = None,
    model_limit: ModelLimits = None,
    active: Annotated[
        bool | None,
        typer.Option("--active/--inactive", help="Whether the tenant's keys are accepted."),
    ] = None,
    weight: Weight = None,
    max_priority: MaxPriority = None,
    records: Records = None,
) -> Any:
    """Change what is given, within a second in every proxy."""
    from proxy.api.admin.admin_bodies import TenantChanges

    body = _filled(
        TenantChanges,
        limit=limit,
        model_limit=model_limit,
        is_active=active,
        weight=weight,
        max_priority=max_priority,
        records=records,
    )
    return _record(lambda store, actor: store.tenants.update(actor, name, body.applied))


@tenants.command("delete")
@prints(show_fields)
def delete_tenant(name: TenantName) -> Any:
    """Delete a tenant whose keys are all revoked. Its usage is kept."""

    return _record(lambda store, actor: store.tenants.delete(actor, name))


@keys.command("create")
@prints(_show_issued)
def create_key(
    tenant: Annotated[str | None, typer.Option(help="The tenant that the key belongs to.")] = None,
    name: KeyName = None,
    scope: Scopes = None,
    model: Models = None,
    limit: Limits = None,
    max_priority: MaxPriority = None,
    expires: Expires = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Fill in tenant and name ({QUICK}), and create the tenant if there is none.",
        ),
    ] = False,
) -> Any:
    """Create a key. It is printed only this once, alone on stdout."""
    from proxy.api.admin.admin_bodies import KeyBody, TenantBody

    if quick:
        tenant, name = tenant or QUICK, name or QUICK
    elif tenant is None or name is None:
        raise LaunchError("give the key's --tenant and --name, or --quick, which fills them in")
    body = _filled(
        KeyBody,
        tenant=tenant,
        name=name,
        scopes=scope,
        models=model,
        limit=limit,
        max_priority=max_priority,
        expires=expires,
    )
    own_tenant = _filled(TenantBody, name=tenant) if quick else None

    async def created(store: Store, actor: str) -> IssuedKey:
        if own_tenant is not None:
            with suppress(Conflict):  # it exists
                await store.tenants.create(actor, own_tenant.name, **own_tenant.options)
        return await store.keys.create(actor, body.tenant, **body.options)

    return _done(created).view


@keys.command("list")
@prints(shows(*KEY_COLUMNS))
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's keys.")] = None,
) -> Any:
    """List keys, the newest first, revoked and expired ones too."""
    return _records(lambda store, _: store.keys.list(tenant=tenant, limit=None))


@keys.command("show")
@prints(show_fields)
def show_key(key_id: KeyId) -> Any:
    """Show one key, without its secret."""
    return _record(lambda store, _: store.keys.show(key_id))


@keys.command("update")
@prints(_show_account)
def update_key(
    key_id: KeyId,
    name: KeyName = None,
    scope: Scopes = None,
    model: Models = None,
    all_models: Annotated[
        bool, typer.Option("--all-models", help="Let it use every model.")
    ] = False,
    limit: Limits = None,
    max_priority: MaxPriority = None,
    expires: Expires = None,
) -> Any:
    """Change what is given, within a second in every proxy."""
    from proxy.api.admin.admin_bodies import KeyChanges

    if model and all_models:
        raise LaunchError("--model and --all-models contradict each other: give one of them")
    body = _filled(
        KeyChanges,
        name=name,
        scopes=scope,
        models=[] if all_models else model,
        limit=limit,
        max_priority=max_priority,
        expires=expires,
    )
    return _key_change(key_id, lambda store, actor: store.keys.update(actor, key_id, body.applied))


@keys.command("rotate")
@prints(_show_issued)
def rotate_key(
    key_id: KeyId,
    overlap_s: Annotated[
        int, typer.Option(help="Seconds for which the key from before is accepted, too.")
    ] = 86_400,
) -> Any:
    """Make a new secret under the same id. It is printed only this once, alone on stdout."""
    from proxy.api.admin.admin_bodies import Rotation

    body = _filled(Rotation, overlap_s=overlap_s)
    return _done(lambda store, actor: store.keys.rotate(actor, key_id, body.overlap)).view


@keys.command("revoke")
@prints(show_fields)
def revoke_key(key_id: KeyId) -> Any:
    """End a key for good, within a second in every proxy."""
    return _key_change(key_id, lambda store, actor: store.keys.revoke(actor, key_id))


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
    from proxy.access.store.usage import as_csv
    from proxy.api.admin.admin_routes import UsageQuery
    from proxy.domain.errors import InvalidRequest

    days = {"from": first, "to": last}
    query = _filled(UsageQuery, **days, tenant=tenant, key=key, model=model, by=by)
    try:
        period = query.period
    except InvalidRequest as error:
        raise LaunchError(error.message) from None
    rows = _done(lambda store, _: store.usage.report(period, query.groups))
    if csv:
        typer.echo(as_csv(rows), nl=False)
        raise typer.Exit
    return rows


@audit.command("list")
@prints(_show_entries)
def list_audit(
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> Any:
    """List entries, the newest first."""
    return _done(lambda store, _: store.audit.list(after=after, limit=limit, is_newest_first=True))


@audit.command("verify")
@prints(show_fields)
def verify_audit() -> Any:
    """Check that no entry was edited, deleted, moved or cut off; exit with 1 if one was."""
    from proxy.api.admin.admin_answers import verification_body

    return verification_body(_done(lambda store, _: store.audit.verify()))


Work = Callable[["Store", str], Awaitable[T]]


def _done(work: Work[T]) -> T:
    """The result of `work`, which gets the store and the name of this machine's user."""
    from proxy.operate import store

    return store.use(lambda opened: work(opened, store.actor()))


def _key_change(key_id: str, work: Work[KeyRecord]) -> dict[str, Any]:
    """As _record. Warns where it takes the last key that may administer."""
    from proxy.domain.identity import Scope

    def administers(key: KeyRecord) -> bool:
        is_over = key.expires_at is not None and key.expires_at <= datetime.now(timezone.utc)
        return Scope.ADMIN in key.scopes and key.revoked_at is None and not is_over

    async def done(store: Store, actor: str) -> KeyRecord:
        had_one = any(map(administers, await store.keys.list(limit=None)))
        record = await work(store, actor)
        if had_one and not any(map(administers, await store.keys.list(limit=None))):
            _warn(
                "no key administers this store over HTTP or the page any more; these commands "
                "still do: keys create --quick --scope admin"
            )
        return record

    return _record(done)


def _record(work: Work[KeyRecord | TenantRecord]) -> dict[str, Any]:
    from proxy.access.store.records import view

    return view(_done(work))


def _records(work: Work[Sequence[KeyRecord] | Sequence[TenantRecord]]) -> list[dict[str, Any]]:
    """The newest first."""
    from proxy.access.store.records import view

    return sorted(map(view, _done(work)), key=lambda each: str(each["created_at"]), reverse=True)


def _filled(kind: type[Body], **options: Any) -> Body:
    """A body of /admin/v1 with the options that were given. An option is the field of its name, if
    it is not in FIELDS.

    Raises:
        LaunchError: one of them is wrong.
    """
    from proxy.api.http.validation_errors import refusal

    fields = {}
    for name, value in options.items():
        field, read = FIELDS.get(name, (name, None))
        if value is not None:
            fields[field] = value if read is None else read(value)
    try:
        return kind.model_validate_json(orjson.dumps(fields))
    except ValidationError as error:
        raise LaunchError(refusal(error, kind).message) from None


def _limits(options: Iterable[str]) -> dict[str, Any]:
    return dict(map(_limit, options))


def _of_models(options: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options:
        if option.endswith(f":{NONE}"):
            found[option.removesuffix(f":{NONE}")] = None
            continue
        match = OF_MODEL.fullmatch(option)
        if match is None:
            raise LaunchError(f"--model-limit {option}: write MODEL:NAME=VALUE, or MODEL:none")
        name, value = _limit(match["limit"])
        found[match["model"]] = {**(found.get(match["model"]) or {}), name: value}
    return found


def _limit(option: str) -> tuple[str, Any]:
    name, has_value, value = option.partition("=")
    if not has_value:
        raise LaunchError(f"--limit {option}: write NAME=VALUE, such as requests_per_minute=60")
    if value == NONE:
        return name, None
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        raise LaunchError(f"--limit {option}: {value!r} is neither a number nor `none`") from None


def _weight(option: str) -> float | None:
    number = math.nan
    with suppress(ValueError):
        number = float(option)
    if option != NONE and not math.isfinite(number):
        raise LaunchError(f"--weight {option}: write a number, such as 3 or 0.5, or `none`")
    return None if option == NONE else number


def _priority(option: str) -> int | None:
    try:
        return None if option == NONE else int(option)
    except ValueError:
        raise LaunchError(
            f"--max-priority {option}: write an integer, such as 5 or -1, or `none`"
        ) from None


def _time(option: str) -> str | None:
    if option == NEVER:
        return None
    if (match := FROM_NOW.fullmatch(option)) is not None:
        at = datetime.now(timezone.utc) + int(match["number"]) * UNITS[match["unit"]]
        return at.isoformat()
    if MOMENT.fullmatch(option) is None:
        raise LaunchError(
            f"--expires {option}: write days or hours from now, such as 90d or 12h, or a time such "
            "as 2027-01-31T12:00:00Z, or `never`"
        )
    return option


# The field of a body that an option fills, and how its words are read.
FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "limit": ("limits", _limits),
    "model_limit": ("of_models", _of_models),
    "weight": ("weight", _weight),
    "max_priority": ("max_priority", _priority),
    "expires": ("expires_at", _time),
}
