"""What an answer must conform to, while it is generated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class GuideKind(str, Enum):
    """The values are the tensor contract's."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "ebnf_grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class Constraint:
    """`text`: a JSON Schema, regex, EBNF or structural tag; empty for any JSON.

    field: the path of the caller's field that asks for it, for errors. is_strict: what a grammar
    cannot enforce is checked in the answer. unenforced: a schema's keywords that a grammar does
    not enforce. unchecked: those that the check of an answer passes over, too. check_error: why an
    answer cannot be checked, None if it can.
    """

    kind: GuideKind
    text: str = ""
    field: str = "constraint"
    is_strict: bool = False
    unenforced: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    check_error: str | None = None
