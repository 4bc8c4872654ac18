"""Durable state: tenants, keys, usage by day and the audit log, in SQLite or PostgreSQL.

`app` and the commands open it here. Its libraries take half a second to import, so they are
imported where there is a store only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.domain.errors import LaunchError
from proxy.settings import Settings
from proxy.settings.group import secret_value

if TYPE_CHECKING:
    from proxy.access.store.store import Store


def open_store(settings: Settings) -> Store | None:
    """None without KEY_PEPPER: then there are no keys but API_KEY.

    Raises:
        LaunchError: STORE_URL names no database, or PostgreSQL's driver is not installed.
    """
    pepper, url = secret_value(settings.key_pepper), secret_value(settings.store_url)
    if pepper is None or url is None:
        return None
    from proxy.access.store.store import Store

    earlier = tuple(each.encode() for each in settings.earlier_peppers)
    try:
        return Store(url, pepper.encode(), earlier)
    except ValueError as error:
        raise LaunchError(f"STORE_URL is wrong: {error}") from None
    except ModuleNotFoundError as error:
        raise LaunchError(
            f"STORE_URL names PostgreSQL, whose driver {error.name} is not installed: pip install "
            "'triton-openai[postgres]'"
        ) from None
