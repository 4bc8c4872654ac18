"""The options of limits: `--limit NAME=VALUE` and `--model-limit MODEL:NAME=VALUE`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import orjson
import typer

from proxy.processes.errors import LaunchError

NONE = "none"
OF_MODEL = re.compile(r"(?P<model>.+):(?P<limit>[a-z_]+=.*)")

LimitOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        help="Such as requests_per_minute=60; `none` removes it. May be repeated: see "
        "docs/access.md for the names.",
    ),
]
ModelLimitOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--model-limit",
        metavar="MODEL:NAME=VALUE",
        help="The same for the use of one model; MODEL:none removes all of its limits.",
    ),
]


def limits(options: Iterable[str]) -> dict[str, Any]:
    """The field `limits` of a body. Raises LaunchError: an option has another form."""
    return dict(_limit(option) for option in options)


def of_models(options: Iterable[str]) -> dict[str, Any]:
    """The field `of_models` of a body. Raises LaunchError: an option has another form."""
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
        raise LaunchError(f"--limit {option}: {value!r} is no number, and not `none`") from None
