"""The store that the settings name, and its routes. Called by `app` and the commands.

Its libraries take half a second to import, so they are imported where there is a store only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from proxy.api.http.body_reader import BodyReader
from proxy.domain.key_records import KeySource
from proxy.domain.usage import UsageStore
from proxy.processes.errors import LaunchError
from proxy.setting_groups.group import secret_value
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.access.store.store import Store


def store(settings: Settings) -> Store | None:
    """None without KEY_PEPPER: then there are no keys but API_KEY.

    Raises:
        LaunchError: STORE_URL names no database, or PostgreSQL's driver is not installed.
    """
    pepper, url = secret_value(settings.key_pepper), secret_value(settings.store_url)
    if pepper is None or url is None:
        return None
    from proxy.access.store.pepper import Peppers
    from proxy.access.store.store import Store

    earlier = tuple(each.encode() for each in settings.earlier_peppers)
    try:
        return Store(url, Peppers(pepper.encode(), earlier))
    except ValueError as error:
        raise LaunchError(f"STORE_URL is wrong: {error}") from None
    except ModuleNotFoundError as error:
        raise LaunchError(
            f"STORE_URL names PostgreSQL, whose driver {error.name} is not installed: pip install "
            "'triton-openai[postgres]'"
        ) from None


def routes(store: Store, bodies: BodyReader) -> tuple[APIRouter, ...]:
    from proxy.api.admin import admin_routes

    admin = store.administration
    return (
        admin_routes.tenants_routes(admin.tenants, bodies),
        admin_routes.keys_routes(admin.keys, bodies),
        admin_routes.usage_routes(admin.usage, bodies),
        admin_routes.audit_routes(admin.audit, bodies),
    )


def keys_and_usage(
    store: Store | None, keys: KeySource | None, usage: UsageStore | None
) -> tuple[KeySource | None, UsageStore | None]:
    """The store's, where none are given."""
    if store is None:
        return keys, usage
    return keys or store.keys, usage or store.usage_store
