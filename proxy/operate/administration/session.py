"""One command's use of the store: open it, do one thing, print the answer as JSON."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson
import typer
from pydantic import BaseModel, ValidationError

from proxy.access.store.open_store import open_store
from proxy.access.store.store import Administration
from proxy.api.http.validation_errors import refusal
from proxy.domain.errors import ProxyError, StoreUnavailable
from proxy.operate import key_store
from proxy.processes.errors import LaunchError
from proxy.settings import Settings

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
NO_PEPPER = (
    "KEY_PEPPER is not set, and keys are hashed under it. Make one, keep it as long as its keys, "
    "and give the same to the proxy and to this command: export KEY_PEPPER=$(python3 -c 'import "
    "secrets; print(secrets.token_urlsafe())')"
)


def actor() -> str:
    """The name of this machine's user, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user that has no name
        return f"cli:{os.getuid()}"


def use(work: Callable[[Administration], Awaitable[T]]) -> T:
    """Runs `work` over the store of the settings.

    Raises:
        LaunchError: there is no pepper, the store cannot be reached, or it refuses.
    """
    return asyncio.run(_use(work))


async def _use(work: Callable[[Administration], Awaitable[T]]) -> T:
    store = open_store(key_store.settled(Settings()))
    if store is None:
        raise LaunchError(NO_PEPPER)
    try:
        await store.prepare()
        return await work(store.administration)
    except StoreUnavailable as error:
        raise key_store.unreachable(error) from None
    except ProxyError as error:
        raise LaunchError(error.message) from None
    finally:
        await store.close()


def filled(kind: type[Body], fields: Mapping[str, Any]) -> Body:
    """A body of /admin/v1 with these fields. Raises LaunchError: one of them is wrong."""
    try:
        return kind.model_validate_json(orjson.dumps(fields))
    except ValidationError as error:
        raise LaunchError(refusal(error).message) from None


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def show(answer: Any) -> None:
    typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
