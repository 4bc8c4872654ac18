"""The store of keys, as commands use it: where it is, its first admin key, and one thing done."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

from pydantic import SecretStr

from proxy.access.store import open_store
from proxy.domain.errors import LaunchError, ProxyError, StoreUnavailable
from proxy.operate.triton_server.folders import data_folder
from proxy.settings import Settings
from proxy.settings.group import secret_value

if TYPE_CHECKING:
    from proxy.access.store.records import IssuedKey
    from proxy.access.store.store import Store
    from proxy.api.admin.admin_routes import Administration

FILE, PROGRAM = "store.db", "triton-openai"
SQLITE = "sqlite:///"
KEY_SUFFIX, MODE = ".admin-key", 0o600
NO_PEPPER = (
    "KEY_PEPPER is not set, and keys are hashed under it. Make one, keep it as long as its keys, "
    "and give the same to the proxy and to this command: export KEY_PEPPER=$(python3 -c 'import "
    "secrets; print(secrets.token_urlsafe())')"
)
Say = Callable[[str], None]
T = TypeVar("T")


def settled(settings: Settings) -> Settings:
    """Fills in FILES_URL, and STORE_URL where there is a pepper: the same for every command and
    folder. Several proxies do not share a folder by chance.

    settings: with `artifacts_dir` as the operator gave it.
    """
    # Not the default `artifacts`, which depends on the folder in which a command is run.
    is_set = "artifacts_dir" in settings.model_fields_set
    folder = settings.artifacts_dir if is_set else data_folder()
    update: dict[str, object] = {}
    if settings.files_url is None and settings.ledger_url is None:
        update["files_url"] = str((folder / "files").resolve())
    if settings.key_pepper is not None and settings.store_url is None:
        update["store_url"] = SecretStr(f"sqlite:///{(folder / FILE).resolve()}")
    return settings.model_copy(update=update)


async def prepared(settings: Settings, say: Say, unpriced: Sequence[str] = ()) -> Settings:
    """Upgrades the store's schema, and makes the first admin key of an empty store.

    A terminal shows the key. Elsewhere, where output is kept, it goes into a file beside SQLite's;
    PostgreSQL has no such place, so there the operator makes the key. unpriced: models without a
    price.

    Raises:
        LaunchError: the store cannot be reached, or was written by a newer release or with
            another pepper; or the first key cannot be kept, and is not made.
    """
    settings = settled(settings)
    store = open_store(settings)
    if store is None:
        return settings
    try:
        await store.prepare()
        await _make_first_key(store, _file(settings), say)
        if unpriced and await _has_budget(store):
            say(f"warning: {budget_note(unpriced)}")
    except StoreUnavailable as error:
        raise _unreachable(error) from None
    finally:
        await store.close()
    return settings


async def _make_first_key(store: Store, database: Path | None, say: Say) -> None:
    if database is None and not sys.stdout.isatty():
        if not await store.audit.list(limit=1):
            say("there are no keys yet: `keys create --quick --scope admin` makes an admin key")
        return

    def keep(made: IssuedKey) -> None:
        if database is None or sys.stdout.isatty():
            say(f"the first admin key, which is shown only now: {made.key}")
        else:
            file = database.with_suffix(KEY_SUFFIX)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            try:
                with open(os.open(file, flags, MODE), "w") as opened:
                    os.fchmod(opened.fileno(), MODE)
                    opened.write(f"{made.key}\n")
            except OSError as error:
                why = f"{file} cannot be written: {error.strerror}"
                raise LaunchError(f"the first admin key was not made, because {why}") from None
            say(f"the first admin key is in {file}, which only this user can read")

        say(
            "it administers this proxy, and does not chat: export it as ADMIN_KEY for "
            "`triton-openai top`"
        )

    await store.keys.create_first(keep)


def _file(settings: Settings) -> Path | None:
    """SQLite's file; None for PostgreSQL."""
    url = secret_value(settings.store_url) or ""
    return Path(url.removeprefix(SQLITE)).resolve() if url.startswith(SQLITE) else None


def budget_note(unpriced: Sequence[str]) -> str:
    return (
        f"a monthly_budget does not limit the use of {', '.join(unpriced)}: a model without "
        "`price` in models.yaml costs nothing"
    )


async def _has_budget(store: Store) -> bool:
    tenants = await store.tenants.list(limit=None)
    limits = [each.limits for each in await store.keys.list(limit=None)]
    for tenant in tenants:
        limits += (tenant.limits, *tenant.of_models.values())
    return any(each.monthly_budget is not None for each in limits)


def quick_key_command(settings: Settings) -> str:
    """For a shell that has KEY_PEPPER, and none of this process's other variables and options.

    PostgreSQL's address has a password, so that shell must have STORE_URL.
    """
    file = _file(settings)
    is_usual = file is None or file == (data_folder() / FILE).resolve()
    place = "" if is_usual else f"STORE_URL={quote(f'{SQLITE}{file}')} "
    return f"{place}{_own_program()} keys create --quick"


def shell_needs(settings: Settings) -> str:
    return "KEY_PEPPER and STORE_URL" if _file(settings) is None else "KEY_PEPPER"


def _own_program() -> str:
    """How a shell in this folder calls this installation."""
    script, found = Path(sys.executable).with_name(PROGRAM), shutil.which(PROGRAM)
    if not script.exists():  # as in the proxy's image
        return f"{quote(sys.executable)} -m proxy.cli" if found is None else PROGRAM
    if found is not None and script.samefile(found):
        return PROGRAM
    here = Path.cwd()
    return quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def use(work: Callable[[Administration], Awaitable[T]]) -> T:
    """Runs `work` over the store of the settings, in the name of this machine's user.

    Raises:
        LaunchError: there is no pepper, the store cannot be reached, or it refuses.
    """

    from proxy.api.admin.admin_routes import Administration

    async def used() -> T:
        store = open_store(settled(Settings()))
        if store is None:
            raise LaunchError(NO_PEPPER)
        try:
            await store.prepare()
            return await work(Administration(store, actor()))
        except StoreUnavailable as error:
            raise _unreachable(error) from None
        except ProxyError as error:
            raise LaunchError(error.message) from None
        finally:
            await store.close()

    return asyncio.run(used())


def name() -> str:
    """The address of the store that commands use, without its password."""
    url = secret_value(settled(Settings()).store_url) or ""
    return re.sub(r"^(\w+://[^/:]*):[^/]*@", r"\1:***@", url)


def actor() -> str:
    """The name of this machine's user, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user that has no name
        return f"cli:{os.getuid()}"


def _unreachable(error: StoreUnavailable) -> LaunchError:
    return LaunchError(f"STORE_URL: the database cannot be reached: {error.detail}")
