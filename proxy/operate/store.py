"""The store of keys, as commands use it: where it is, its first admin key, and one thing done."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pydantic import SecretStr

from proxy.access.store import open_store
from proxy.domain.errors import LaunchError, ProxyError, StoreUnavailable
from proxy.operate.triton_server.folders import data_folder
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.access.store.store import Store

FILE = "store.db"
NO_PEPPER = (
    "KEY_PEPPER is not set, and keys are hashed under it. Make one, keep it as long as its keys, "
    "and give the same to the proxy and to this command: export KEY_PEPPER=$(python3 -c 'import "
    "secrets; print(secrets.token_urlsafe())')"
)
Say = Callable[[str], None]
T = TypeVar("T")


def settled(settings: Settings) -> Settings:
    """Fills in STORE_URL, where there is a pepper: the same for every command and folder."""
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
            "      it may administrate, and nothing else: make others with `triton-openai keys "
            "create`, or with /admin/v1/keys"
        )
    return settings


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
