"""What the administration makes of the fields of tenants, keys and limits.

The records annotate their fields with it. Columns of the store, bodies, answers, the page's inputs
and options of commands follow from it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

Form = Literal["answer", "create", "change"]


class Text(NamedTuple):
    """What the OpenAPI document says of a field of one answer or body."""

    description: str | None = None
    example: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """since: the version of the schema that has added the column, which a release never changes.
    answer, create, change: of the field in answers, and in bodies that create or change a record;
    None: they have no such field. flag, help: of the command's option; None: it has none, or its
    own. least, most: of a number. pattern: of a text.
    """

    since: str = "0001"
    answer: Text | None = None
    create: Text | None = None
    change: Text | None = None
    flag: str | None = None
    help: str | None = None
    least: float | None = None
    most: float | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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
        is_optional = type(None) in get_args(kind)
        if is_optional:
            kind, *_ = get_args(kind)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        found.append(
            AccountField(
                name=one.name,
                kind=get_origin(kind) or kind,
                is_optional=is_optional,
                default=default,
                shown=shown,
            )
        )
    return tuple(found)
