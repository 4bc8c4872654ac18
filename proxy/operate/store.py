"""The store of keys, as commands use it: where it is, its first admin key, and one thing done."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
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
    from proxy.access.store.store import Store

FILE, PROGRAM = "store.db", "triton-openai"
NO_PEPPER = (
    "KEY_PEPPER is not set, and keys are hashed under it. Make one, keep it as long as its keys, "
    "and give the same to the proxy and to this command: export KEY_PEPPER=$(python3 -c 'import "
    "secrets; print(secrets.token_urlsafe())')"
)
Say = Callable[[str], None]
T = TypeVar("T")


def settled(settings: Settings) -> Settings:
    """Fills in STORE_URL, where there is a pepper: the same for every command and folder.

    settings: with `artifacts_dir` as the operator gave it.
    """
    if settings.key_pepper is None or settings.store_url is not None:
        return settings
    # Not the default `artifacts`, which depends on the folder in which a command is run.
    is_set = "artifacts_dir" in settings.model_fields_set
    folder = settings.artifacts_dir if is_set else data_folder()
    url = f"sqlite:///{(folder / FILE).resolve()}"
    return settings.model_copy(update={"store_url": SecretStr(url)})


async def prepared(settings: Settings, say: Say) -> Settings:
    """Upgrades the store's schema, and prints the first admin key of an empty store.

    Raises:
        LaunchError: the store cannot be reached, or was written by a newer release or with
            another pepper.
    """
    settings = settled(settings)
    store = open_store(settings)
    if store is None:
        return settings
    try:
        await store.prepare()
        made = await store.keys.create_first()
    except StoreUnavailable as error:
        raise _unreachable(error) from None
    finally:
        await store.close()
    if made is not None:
        say(
            f"the first admin key, which is shown only now: {made.key}\n"
            "      it administers this proxy, and does not chat: export it as ADMIN_KEY for "
            "`triton-openai top`"
        )
    return settings


def quick_key_command(settings: Settings) -> str:
    """For the shell of somebody who has this process's variables, but not its options."""
    url = secret_value(settings.store_url)
    is_usual = url == secret_value(settled(Settings()).store_url)
    place = "" if is_usual or url is None else f"STORE_URL={quote(url)} "
    return f"{place}{_own_program()} keys create --quick"


def _own_program() -> str:
    """How a shell in this folder calls this installation."""
    script, found = Path(sys.executable).with_name(PROGRAM), shutil.which(PROGRAM)
    if not script.exists():  # as in the proxy's image
        return f"{quote(sys.executable)} -m proxy.cli" if found is None else PROGRAM
    if found is not None and script.samefile(found):
        return PROGRAM
    here = Path.cwd()
    return quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def use(work: Callable[[Store], Awaitable[T]]) -> T:
    """Runs `work` over the store of the settings.

    Raises:
        LaunchError: there is no pepper, the store cannot be reached, or it refuses.
    """

    async def used() -> T:
        store = open_store(settled(Settings()))
        if store is None:
            raise LaunchError(NO_PEPPER)
        try:
            await store.prepare()
            return await work(store)
        except StoreUnavailable as error:
            raise _unreachable(error) from None
        except ProxyError as error:
            raise LaunchError(error.message) from None
        finally:
            await store.close()

    return asyncio.run(used())


def actor() -> str:
    """The name of this machine's user, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user that has no name
        return f"cli:{os.getuid()}"


def _unreachable(error: StoreUnavailable) -> LaunchError:
    return LaunchError(f"STORE_URL: the database cannot be reached: {error.detail}")
