"""What the administration makes of the fields of tenants, keys and limits.

The records annotate their fields with it. Columns of the store, bodies, answers, the page's inputs
and options of commands follow from it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

Form = Literal["answer", "create", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """since: the version of the schema that has added the column, which a release never changes.
    answer, create, change: the OpenAPI document's text of the field in answers, and in bodies that
    create or change a record; "": it has none; None: they have no such field. example: of the first
    two. flag, help: of the command's option; None: it has none, or its own. least, most: of a
    number. pattern: of a text.
    """

    since: str = "0001"
    answer: str | None = None
    create: str | None = None
    change: str | None = None
    example: object = None
    change_example: object = None
    flag: str | None = None
    help: str | None = None
    least: float | None = None
    most: float | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class AccountField:
    """kind: the type without `None` and without parameters. default: MISSING if there is none."""

    name: str
    kind: Any
    is_optional: bool
    default: Any
    shown: Shown


def fields_of(record: type) -> tuple[AccountField, ...]:
    """The fields of a dataclass. One without `Shown` is a column, and nothing else."""
    found, hints = [], get_type_hints(record, include_extras=True)
    for one in fields(record):
        hint = hints[one.name]
        kind, shown = get_args(hint) if get_origin(hint) is Annotated else (hint, Shown())
        if is_optional := type(None) in get_args(kind):
            kind, *_ = get_args(kind)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        kind = get_origin(kind) or kind
        found.append(AccountField(one.name, kind, is_optional, default, shown))
    return tuple(found)
