"""Where the store of keys is, and its first admin key. Called by `run` and by the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from proxy.access.store.open_store import open_store
from proxy.domain.errors import StoreUnavailable
from proxy.operate.triton_server.own_artifacts import data_folder
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

FILE = "store.db"
Say = Callable[[str], None]


def settled(settings: Settings) -> Settings:
    """Fills in STORE_URL, where there is a pepper: the same for every command and folder."""
    if settings.key_pepper is None or settings.store_url is not None:
        return settings
    url = f"sqlite:///{(_folder(settings) / FILE).resolve()}"
    return settings.model_copy(update={"store_url": SecretStr(url)})


def _folder(settings: Settings) -> Path:
    """Not the default `artifacts`: it depends on the folder in which a command is run."""
    is_set = "artifacts_dir" in settings.model_fields_set
    return settings.artifacts_dir if is_set else data_folder()


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
        made = await store.create_first_key()
    except StoreUnavailable as error:
        raise unreachable(error) from None
    finally:
        await store.close()
    if made is not None:
        say(
            f"the first admin key, which is shown only now: {made.key}\n"
            "      it may administrate, and nothing else: make others with `triton-openai keys "
            "create`, or with /admin/v1/keys"
        )
    return settings


def unreachable(error: StoreUnavailable) -> LaunchError:
    return LaunchError(f"STORE_URL: the database cannot be reached: {error.detail}")
