"""How commands print their answers: as a table for people, or with --json as it is.

rich is imported where a table is printed, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ParamSpec, TypeGuard

import orjson
import typer

WIDE = 1000
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")  # as our JSON has it, in UTC
P = ParamSpec("P")
Options = Mapping[str, tuple[Any, Any]]
"""Options by parameter: type and default."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]


def prints(show: Callable[[Any], None]) -> Callable[[Callable[P, Any]], Callable[..., None]]:
    """Makes a command of a function that returns its answer.

    It gets the option --json, which prints the answer as it is; else `show` prints it for people.
    Exits with 1 where the answer says that it is not `ok`.
    """

    def command_of(work: Callable[P, Any]) -> Callable[..., None]:
        @functools.wraps(work)
        def command(*, as_json: bool = False, **given: Any) -> None:
            answer = work(**given)  # type: ignore[call-arg]
            if as_json:
                typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
            else:
                show(answer)
            if isinstance(answer, Mapping) and answer.get("ok") is False:
                raise typer.Exit(1)

        own = inspect.signature(work, eval_str=True).parameters.values()
        set_options(command, own, {"as_json": (AsJson, False)})
        return command

    return command_of


def set_options(
    command: Callable[..., Any], own: Iterable[inspect.Parameter], options: Options
) -> None:
    """Gives a command its own parameters, and these options."""
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, to_stderr: bool = False
) -> None:
    """A cell may be a list of texts with their styles."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(*(Column(each, no_wrap=each == "address") for each in headings), box=None)
    for row in rows:
        table.add_row(
            *(Text.assemble(*cell) if is_styled(cell) else Text(words(cell)) for cell in row)
        )
    console = Console(soft_wrap=True, highlight=False, stderr=to_stderr)
    if not console.is_terminal:  # a file or a program, which need no line breaks
        console.width = WIDE
    console.print(table)


def is_styled(cell: object) -> TypeGuard[list[tuple[str, str]]]:
    return isinstance(cell, list) and any(isinstance(part, tuple) for part in cell)


def shows(*names: str) -> Callable[[Iterable[Mapping[str, Any]]], None]:
    """Shows objects as rows of these fields."""
    return lambda answer: show_table(names, ([each[name] for name in names] for each in answer))


def show_fields(answer: Mapping[str, Any], *, to_stderr: bool = False) -> None:
    """One object: a line for each of its fields."""
    show_table(("field", "value"), answer.items(), to_stderr=to_stderr)


def words(value: object) -> str:
    """A JSON value in a cell."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(map(_named, value, value.values())) or "-"
        case list() | tuple():
            return ", ".join(map(words, value)) or "-"
        case str() if MOMENT.fullmatch(value):
            return f"{value[:10]} {value[11:19]}"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)


def _named(name: str, value: object) -> str:
    return f"{name}: ({words(value)})" if isinstance(value, Mapping) else f"{name}={words(value)}"
