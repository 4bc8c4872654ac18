"""The options `--weight` and `--max-priority` of tenants and keys."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from proxy.operate.administration.limit_options import NONE
from proxy.processes.errors import LaunchError

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


def fields(
    *, weight: str | None = None, max_priority: str | None = None
) -> dict[str, float | int | None]:
    """The fields of a body for the options that were given; `none` is null.

    Raises:
        LaunchError: an option is not a number.
    """
    found: dict[str, float | int | None] = {}
    if weight is not None:
        found["weight"] = None if weight == NONE else _number(weight)
    if max_priority is not None:
        found["max_priority"] = None if max_priority == NONE else _integer(max_priority)
    return found


def _number(weight: str) -> float:
    try:
        number = float(weight)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LaunchError(f"--weight {weight}: write a number, such as 3 or 0.5, or `none`")
    return number


def _integer(priority: str) -> int:
    try:
        return int(priority)
    except ValueError:
        raise LaunchError(
            f"--max-priority {priority}: write an integer, such as 5 or -1, or `none`"
        ) from None
