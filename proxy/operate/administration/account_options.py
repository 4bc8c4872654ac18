"""The options by which commands take fields of tenants and keys, as the table of them says."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, NamedTuple

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


def _as_given(flag: str, option: Any) -> Any:
    return option


class Words(NamedTuple):
    """How an option says a field's value. read: gets the option's name and its words."""

    kind: Any
    metavar: str | None
    read: Callable[[str, Any], Any]


WORDS = {
    Limits: Words(list[str], "NAME=VALUE", _limits),
    dict: Words(list[str], "MODEL:NAME=VALUE", _of_models),
    frozenset: Words(list[str], None, _as_given),
    ModelPatterns: Words(list[str], None, _as_given),
    bool: Words(bool, None, _as_given),
    int: Words(str, "NUMBER", _integer),
    float: Words(str, "NUMBER", _number),
    datetime: Words(str, None, _time),
}


def takes(fields: Sequence[AccountField], form: Form) -> Callable[[Callable[..., Any]], Any]:
    """Gives a command the options of these fields, in place of its parameter `fields`.

    The command gets those that were given as the body has them.
    """
    shown = {
        one.name: one for one in fields if one.shown.flag and getattr(one.shown, form) is not None
    }

    def command_of(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def command(**given: Any) -> Any:
            options = {name: given.pop(name) for name in shown}
            found = {
                name: WORDS[shown[name].kind].read(str(shown[name].shown.flag), option)
                for name, option in options.items()
                if option is not None
            }
            return work(**given, fields=found)

        own = inspect.signature(work, eval_str=True).parameters
        parameters: dict[str, inspect.Parameter] = {}
        for name in own:
            if name != "fields":
                parameters.setdefault(name, own[name])
                continue
            for field, one in shown.items():
                parameters[field] = _option(one)
                if (more := f"all_{field}") in own:
                    parameters[more] = own[more]
        command.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
        return command

    return command_of


def _option(one: AccountField) -> inspect.Parameter:
    kind, metavar, _ = WORDS[one.kind]
    option = typer.Option(str(one.shown.flag), help=one.shown.help, metavar=metavar)
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[(kind | None, option)],
    )
