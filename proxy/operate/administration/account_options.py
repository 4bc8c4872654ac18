"""The options by which commands take fields of tenants and keys, as the table of them says."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import orjson
import typer

from proxy.domain.account_fields import AccountField, Form
from proxy.domain.errors import LaunchError
from proxy.domain.identity import Limits, ModelPatterns

NONE, NEVER = "none", "never"
OF_MODEL = re.compile(r"(?P<model>.+):(?P<limit>[a-z_]+=.*)")
FROM_NOW = re.compile(r"(?P<number>[1-9][0-9]{0,5})(?P<unit>[dh])")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)")
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1)}


def _limits(flag: str, options: Iterable[str]) -> dict[str, Any]:
    return dict(map(_limit, options))


def _of_models(flag: str, options: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options:
        if option.endswith(f":{NONE}"):
            found[option.removesuffix(f":{NONE}")] = None
            continue
        match = OF_MODEL.fullmatch(option)
        if match is None:
            raise LaunchError(f"{flag} {option}: write MODEL:NAME=VALUE, or MODEL:none")
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


def _number(flag: str, option: str) -> float | None:
    number = math.nan
    with suppress(ValueError):
        number = float(option)
    if option != NONE and not math.isfinite(number):
        raise LaunchError(f"{flag} {option}: write a number, such as 3 or 0.5, or `none`")
    return None if option == NONE else number


def _integer(flag: str, option: str) -> int | None:
    try:
        return None if option == NONE else int(option)
    except ValueError:
        raise LaunchError(
            f"{flag} {option}: write an integer, such as 5 or -1, or `none`"
        ) from None


def _time(flag: str, option: str) -> str | None:
    if option == NEVER:
        return None
    if (match := FROM_NOW.fullmatch(option)) is not None:
        at = datetime.now(timezone.utc) + int(match["number"]) * UNITS[match["unit"]]
        return at.isoformat()
    if MOMENT.fullmatch(option) is None:
        raise LaunchError(
            f"{flag} {option}: write days or hours from now, such as 90d or 12h, or a time such "
            "as 2027-01-31T12:00:00Z, or `never`"
        )
    return option


# How an option says a field's value: its type, its metavar, and what reads its words; else they are
# the value.
WORDS: Mapping[Any, tuple[Any, str | None, Callable[[str, Any], Any] | None]] = {
    Limits: (list[str], "NAME=VALUE", _limits),
    dict: (list[str], "MODEL:NAME=VALUE", _of_models),
    frozenset: (list[str], None, None),
    ModelPatterns: (list[str], None, None),
    bool: (bool, None, None),
    int: (str, "NUMBER", _integer),
    float: (str, "NUMBER", _number),
    datetime: (str, None, _time),
}


def takes(fields: Sequence[AccountField], form: Form) -> Callable[[Callable[..., Any]], Any]:
    """Gives a command the options of these fields, in place of its parameter `fields`, which gets
    those that were given as the body has them. Its own parameter `all_<field>` follows the field's.
    """
    having = (one for one in fields if getattr(one.shown, form) is not None)
    shown = {one.name: one for one in having if one.shown.flag is not None}

    def command_of(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def command(**given: Any) -> Any:
            found = {}
            for name, one in shown.items():
                if (option := given.pop(name)) is not None:
                    _, _, read = WORDS[one.kind]
                    found[name] = option if read is None else read(str(one.shown.flag), option)
            return work(**given, fields=found)

        own = dict(inspect.signature(work, eval_str=True).parameters)
        place = own.pop("fields")
        parameters = [each for each in own.values() if each.kind is not place.kind]
        for name, one in shown.items():
            kind, metavar, _ = WORDS[one.kind]
            option = typer.Option(str(one.shown.flag), help=one.shown.help, metavar=metavar)
            parameters.append(
                place.replace(name=name, default=None, annotation=Annotated[(kind | None, option)])
            )
            if (more := f"all_{name}") in own:
                parameters.append(own.pop(more))
        parameters += [each for each in own.values() if each.kind is place.kind]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return command_of
